"""Which settings of a configuration somebody chose, and which are as they would be anyway."""

from typing import Any

import pytest

from seqloom.config.settings import list_settings
from seqloom.tasks.configuration import resolve

PAIRS = {"train": {"source": "train.de", "target": "train.en"}}
FILES = {"train": {"files": "train.txt"}}


def list_chosen(words: int = 1000, **table: Any) -> dict[str, str]:
    return {setting.key: setting.value for setting in list_settings(resolve(table, words=words)) if not setting.usual}


@pytest.mark.parametrize("words", [1000, 10**6, 10**9])
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_what_the_size_decides_is_not_chosen(words: int, optimizer: str) -> None:
    chosen = list_chosen(words, task="translation", data=PAIRS, train={"optimizer": optimizer})
    files = {"data.train.source": '["train.de"]', "data.train.target": '["train.en"]'}
    assert chosen == files | ({"train.optimizer.kind": '"adamw"'} if optimizer == "adamw" else {})


def test_what_is_given_is_chosen_wherever_it_stands() -> None:
    chosen = list_chosen(
        task="translation",
        data={**PAIRS, "checks": {"blank": "off"}},
        tokenizer="words",
        model={"encoder": {"family": "recurrent", "num_layers": 3, "cell": "gru"}},
        train={"minutes": 5, "optimizer": {"learning_rate": 0.5}},
    )
    del chosen["data.train.source"], chosen["data.train.target"]
    assert chosen == {
        "data.checks.blank": '"off"',
        "tokenizer.kind": '"words"',
        "model.encoder.family": '"recurrent"',
        "model.encoder.num_layers": "3",
        "model.encoder.cell": '"gru"',
        "model.decoder.family": '"recurrent"',  # it follows its encoder in this
        "train.minutes": "5.0",
        "train.optimizer.learning_rate": "0.5",
    }


def test_a_value_that_is_given_as_it_would_be_anyway_is_usual() -> None:
    given = list_chosen(task="language-model", data=FILES, train={"seed": 1, "keep": 3}, tokenizer="bpe")
    assert given == {"data.train.files": '["train.txt"]'}


def test_two_tokenisers_have_settings_of_their_own() -> None:
    chosen = list_chosen(task="translation", data=PAIRS, tokenizer={"source": "words", "target": {"kind": "bpe"}})
    del chosen["data.train.source"], chosen["data.train.target"]
    assert chosen["tokenizer.source.kind"] == '"words"'
    assert "tokenizer.target.size" not in chosen


def test_every_setting_says_what_it_means() -> None:
    settings = list_settings(resolve({"task": "tagging", "data": {"train": {"files": "a.conll"}}}))
    assert len({setting.key for setting in settings}) == len(settings)
    silent = [setting.key for setting in settings if not setting.about and setting.key != "task"]
    assert all(key.rpartition(".")[2] in ("kind", "family", "format") for key in silent), silent
