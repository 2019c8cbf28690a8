"""Texts from nothing, tokens that training never saw, special tokens in prompts, and models without an end."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

import seqloom
from seqloom.cli.main import app
from seqloom.errors import ConfigError, RunError
from seqloom.hub.bundle import find_special_tokens
from seqloom.predict.model import Model
from seqloom.predict.storage import open_folder
from seqloom.runs.run import read_seen
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import sentences, write_config
from small_runs import Runs

Make = Callable[..., Path]
BYTES = 'tokenizer={kind = "bytes"}'
UNTIL = {"sample": True, "temperature": 50.0, "max_length": 40}
"""So hot that every token that may be drawn is about as likely as any other."""


@pytest.fixture(scope="module")
def make(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A language model that was hardly trained, with some settings."""

    def train_one(*overrides: str, task: str = "language-model") -> Path:
        folder = tmp_path_factory.mktemp("generating")
        path = write_config(folder, corpora, task, "recurrent", "steps = 2\nvalidate_every = 2")
        return train(path, overrides, out=folder / "run", monitor=PlainMonitor(Console(quiet=True))).folder

    return train_one


@pytest.fixture(scope="module")
def in_bytes(make: Make) -> Path:
    return make(BYTES, "frame.before=bos")


def used_bytes(corpora: Path) -> set[str]:
    return {*(corpora / "train.txt").read_text()} - {"\n"}


def test_texts_begin_with_nothing(runs: Runs) -> None:
    model = seqloom.load(runs("running-text"))
    found = model.generate(count=10, seed=3, max_length=12)
    assert len(found) == 10
    assert len({one.text for one in found}) > 5, "each is drawn by itself"
    assert found == model.generate(count=10, seed=3, max_length=12)
    assert [one.text.split()[0] in ("the", "a") for one in found].count(True) >= 9, "as sentences of the data begin"
    assert (
        model.generate([""], max_length=6)[0] == model.generate("", max_length=6) == model.generate("  ", max_length=6)
    )
    assert "".join(model.stream(max_length=6)) == model.generate("", max_length=6).text != ""


def test_the_command_draws_texts_from_nothing(runs: Runs, tmp_path: Path) -> None:
    model = str(runs("running-text"))
    given = ["generate", model, "--count", "4", "--max-length", "6"]
    printed = CliRunner().invoke(app, given).stdout.splitlines()
    assert printed == [one.text for one in seqloom.load(model).generate(count=4, max_length=6)]
    assert CliRunner().invoke(app, [*given, "--stream"]).stdout.splitlines() == printed
    (tmp_path / "lines").write_text("the cat\n")
    assert CliRunner().invoke(app, [*given[:2], str(tmp_path / "lines"), *given[2:]]).exit_code == 2


def test_what_is_asked_of_generate_is_one_thing(runs: Runs) -> None:
    model = seqloom.load(runs("running-text"))
    for asked in ({}, {"count": 0}, {"prompts": "a", "count": 2}, {"count": 2, "beam": 3}):
        with pytest.raises(ConfigError, match=r"count|beam"):
            model.generate(**asked)  # type: ignore[call-overload]


def test_a_model_that_did_not_learn_how_texts_begin_says_so(runs: Runs) -> None:
    with pytest.raises(RunError, match="did not learn how a text begins"):
        seqloom.load(runs("language-model")).generate(count=2)


@pytest.mark.parametrize("rows", ['{kind = "lines", max_length = 32}', '{kind = "windows", length = 32}'])
def test_without_an_end_token_the_length_ends_a_text(rows: str, make: Make) -> None:
    model = seqloom.load(make("frame.after=[]", "frame.before=bos", f"batch.rows={rows}"))
    for found in model.generate(count=3, max_length=7) + model.generate(["the"], beam=2, max_length=7):
        assert len(found.tokens) == 7
        assert not found.finished
    assert "".join(model.stream("the", max_length=5)) == model.generate("the", max_length=5).text


@pytest.mark.parametrize("engine", ["compiled", "open"])
def test_bytes_that_training_never_saw_are_never_drawn(engine: Any, in_bytes: Path, corpora: Path) -> None:
    model = seqloom.load(in_bytes, engine=engine)
    drawn = {character for found in model.generate(count=8, **UNTIL) for character in found.text}
    assert drawn <= used_bytes(corpora)
    assert len(drawn) > 15
    free = {character for found in model.generate(count=8, allow_unseen=True, **UNTIL) for character in found.text}
    assert free - used_bytes(corpora)
    beams = model.generate(["the"], beam=6, nbest=6, max_length=30)[0]
    assert {*"".join(one.text for one in (beams, *beams.alternatives))} <= used_bytes(corpora)


def test_a_saved_model_and_an_exported_one_know_it_too(in_bytes: Path, tmp_path: Path) -> None:
    seen = read_seen(in_bytes)
    assert seen is not None
    assert len(seen.unseen) > 200
    seqloom.load(in_bytes).save(tmp_path / "copy")
    assert read_seen(tmp_path / "copy") == seen
    assert {*seen.unseen} <= {*find_special_tokens(open_folder(in_bytes)).suppressed}


def test_onnx_says_which_tokens_are_never_written(in_bytes: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from seqloom.predict.export import export

    folder = export(in_bytes, "onnx", tmp_path / "onnx").folder
    seen = read_seen(in_bytes)
    assert seen is not None
    assert {*seen.unseen} <= {*json.loads((folder / "model.json").read_text())["never"]}


def test_a_model_from_elsewhere_has_no_record_and_no_mask(in_bytes: Path, corpora: Path) -> None:
    known = seqloom.load(in_bytes)
    model = seqloom.assemble(known.config, known.tokenizer, known.network.state_dict())
    assert {*"".join(one.text for one in model.generate(count=8, **UNTIL))} - used_bytes(corpora)


def test_what_must_be_contained_may_be_new(in_bytes: Path) -> None:
    model = seqloom.load(in_bytes)
    assert "Q" in model.generate("the", constraints=["Q"], max_length=12).text


def test_a_run_that_starts_from_another_has_seen_what_that_saw(in_bytes: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("QQ\nZZ\n" * 40)
    data = (f'data.train.files="{tmp_path}/train.txt"', f'data.valid.files="{tmp_path}/train.txt"')
    alone, later = read_seen(make(BYTES, "frame.before=bos", *data)), None
    later = read_seen(make(BYTES, "frame.before=bos", *data, f'init="{in_bytes}"'))
    before = read_seen(in_bytes)
    assert before is not None
    assert alone is not None
    assert later is not None
    assert {*later.unseen} == {*before.unseen} & {*alone.unseen} < {*before.unseen}


def test_translations_hold_no_unseen_token(make: Make) -> None:
    model: Model = seqloom.load(make(BYTES, "batch.max_length=64", task="translation"))
    found = model.translate(sentences(4, seed=3), align=False, **UNTIL)
    assert {*"".join(one.text for one in found)} <= {
        *"".join(sentences(400, seed=1)),
        *"".join(sentences(400, seed=1)).upper(),
    }


def test_special_tokens_in_a_prompt_are_text_unless_asked_for(runs: Runs) -> None:
    model = seqloom.load(runs("running-text"))
    reads: list[list[int]] = []
    embedding = next(part for part in model.network.modules() if type(part).__name__ == "TokenEmbedding")
    assert isinstance(embedding, nn.Module)
    embedding.register_forward_pre_hook(lambda _, given: reads.append(given[0].flatten().tolist()))
    end = model.tokenizer.roles.eos
    for special in (False, True):
        reads.clear()
        model.generate("the cat [EOS] a", max_length=1, special_tokens=special)
        assert (end in reads[0][1:]) == special
    with warnings.catch_warnings(), torch.no_grad():
        plain = "".join(model.stream("the cat [EOS]", max_length=4, special_tokens=True))
    assert plain == model.generate("the cat [EOS]", max_length=4, special_tokens=True).text
