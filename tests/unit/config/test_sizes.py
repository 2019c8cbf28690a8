"""What a size says, and what goes before it."""

from pathlib import Path

import pytest

from seqloom.config.dump import dump
from seqloom.config.sizes import PRESETS, choose_size
from seqloom.errors import ConfigError
from seqloom.tasks.configuration import parse

TRANSLATION = 'task = "translation"\n[data.train]\nsource = "a"\ntarget = "b"\n'
TAGGING = 'task = "tagging"\n[data.train]\nformat = "conll"\nfiles = "a"\n'


def test_more_words_never_give_a_smaller_model() -> None:
    names = list(PRESETS)
    chosen = [names.index(choose_size(10**power)) for power in range(12)]
    assert chosen == sorted(chosen)
    assert set(chosen) == set(range(len(names)))


@pytest.mark.parametrize("size", PRESETS)
def test_a_size_fills_what_is_not_said(size: str) -> None:
    config = parse(f'size = "{size}"\n' + TRANSLATION)
    preset = PRESETS[size]
    for stack in (config.model.encoder, config.model.decoder):
        assert (stack.model_dim, stack.num_layers, stack.dropout) == preset[2:5]
    assert config.model.embedding_dropout == preset.dropout
    assert config.tokenizer.size == preset.vocabulary
    alone = parse(f'size = "{size}"\n' + TRANSLATION, ["train.optimizer=adamw"])
    assert alone.train.optimizer.learning_rate == preset.learning_rate


def test_what_was_learned_before_is_not_trained_by_muon(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(dump(parse(TRANSLATION, words=1000)))
    assert parse(TRANSLATION, words=1000).train.optimizer.kind == "muon"
    tuned = parse(f'init = "{tmp_path.as_posix()}"\n' + TRANSLATION, words=1000)
    assert tuned.train.optimizer.kind == "adamw"
    assert tuned.train.optimizer.learning_rate == PRESETS["tiny"].learning_rate


def test_auto_waits_until_the_words_are_counted() -> None:
    assert parse(TAGGING).size == "auto"
    assert parse(TAGGING, words=1000).size == "tiny"
    assert parse(TAGGING, words=1000).model.encoder.model_dim == PRESETS["tiny"].model_dim


def test_what_is_said_goes_before_the_size() -> None:
    given = ["model.encoder.model_dim=48", "train.optimizer.learning_rate=0.5", "model.decoder.num_layers=1"]
    config = parse(TRANSLATION, given, words=1000)
    assert config.model.encoder.model_dim == config.model.decoder.model_dim == 48
    assert (config.model.encoder.num_layers, config.model.decoder.num_layers) == (PRESETS["tiny"].num_layers, 1)
    assert config.train.optimizer.learning_rate == 0.5


@pytest.mark.parametrize(
    ("given", "size"), [('"unigram"', 4000), ('{kind = "bpe", size = 300}', 300), ('"characters"', None)]
)
def test_the_vocabulary_of_sub_words_follows_the_size(given: str, size: int | None) -> None:
    config = parse(f"tokenizer = {given}\n" + TAGGING, words=1000)
    assert getattr(config.tokenizer, "size", None) == size


def test_a_resolved_configuration_stays_what_it_is() -> None:
    config = parse(TRANSLATION, words=10**6)
    assert parse(dump(config), words=10) == config


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="size"):
        parse('size = "huge"\n' + TRANSLATION)
