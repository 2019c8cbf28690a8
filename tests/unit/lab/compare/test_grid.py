"""The grid of a comparison, and configurations that change their family."""

import tomllib
from typing import Any

import pytest

from seqloom.errors import ConfigError
from seqloom.lab.compare.fitting import fit
from seqloom.lab.compare.grid import read_grid, split_values
from seqloom.tasks import TASKS, TranslationTask
from seqloom.tasks.configuration import parse

FAMILIES = "model.encoder.family=transformer,recurrent,convolutional"
WRITTEN = """task = "translation"
tokenizer = "bpe"
data.train = {source = "a", target = "b"}
[model.encoder]
num_heads = 8
positions = "rotary"
model_dim = 64
[model.decoder]
num_heads = 8
positions = "alibi"
"""


def test_all_combinations_share_by_share() -> None:
    grid = read_grid([FAMILIES, "model.encoder.num_layers=1,2"], "1,0.1")
    assert grid.shares == (0.1, 1.0)
    assert len(grid.cells) == 3 * 2 * 2
    assert [cell.share for cell in grid.cells] == [0.1] * 6 + [1.0] * 6
    third = grid.cells[2]
    assert third.name == "recurrent, num_layers 1, 10% of the data"
    assert third.name_folder(7) == "recurrent-num_layers-1-share-0.1-seed-7"
    assert grid.set_values(third) == ["model.encoder.family=recurrent", "model.encoder.num_layers=1"]
    assert [axis.is_numeric for axis in grid.axes] == [False, True]


def test_commas_within_brackets_and_quotes_belong_to_a_value() -> None:
    assert split_values('muon,{kind = "adamw", beta1 = 0.8},[1, 2],"a,b"') == [
        "muon",
        '{kind = "adamw", beta1 = 0.8}',
        "[1, 2]",
        '"a,b"',
    ]


def test_axes_of_the_same_name_are_told_apart() -> None:
    grid = read_grid(["model.encoder.family=transformer", "model.decoder.family=recurrent,convolutional"])
    assert [cell.name for cell in grid.cells] == [
        "encoder.family transformer, decoder.family recurrent",
        "encoder.family transformer, decoder.family convolutional",
    ]


@pytest.mark.parametrize(
    ("over", "shares", "message"),
    [
        ([], None, "there is nothing to compare"),
        (["x"], None, "is not of the form"),
        (["a.b="], None, "is not of the form"),
        (["a.b=1,"], None, "is not of the form"),
        (["a.b=1,1"], None, "a value is given twice"),
        (["a.b=1", "a.b=2"], None, "is given twice"),
        (["train.seed=1,2"], None, "says how many seeds"),
        (["task=tagging,translation"], None, "different tasks"),
        (["data.valid.files=a,b"], None, "judged by the same records"),
        ([], "0,1", "above 0 and up to 1"),
        ([], "half", "above 0 and up to 1"),
        (["data.train_share=0.1,1"], "1", "give one of them"),
    ],
)
def test_what_is_no_grid_is_refused(over: list[str], shares: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_grid(over, shares)


def change(*changes: str) -> tuple[Any, list[str]]:
    fitted = fit(TranslationTask, tomllib.loads(WRITTEN), changes)
    return parse(WRITTEN, fitted.overrides), fitted.left_out


def test_another_family_keeps_what_it_has_and_says_what_it_has_not() -> None:
    config, left_out = change("model.encoder.family=recurrent")
    assert (config.model.encoder.family, config.model.decoder.family) == ("recurrent", "recurrent")
    assert (config.model.encoder.model_dim, config.model.decoder.model_dim) == (64, 64)
    assert left_out == [
        "model.encoder.num_heads and model.encoder.positions: left out for recurrent, which has no such key.",
        "model.decoder.num_heads and model.decoder.positions: left out for recurrent, which has no such key.",
    ]
    config, left_out = change("model.encoder.family=convolutional")
    assert config.model.encoder.positions.kind == "sinusoidal", "rotary positions are none of a convolution's"
    assert config.model.decoder.num_heads == 8, "those of the attention to the source"
    assert left_out == [
        "model.encoder.num_heads: left out for convolutional, which has no such key.",
        "model.encoder.positions: left out for convolutional, which does not take that value.",
        "model.decoder.positions: left out for convolutional, which does not take that value.",
    ]
    config, left_out = change("model.encoder.family=transformer")
    assert (config.model.encoder.num_heads, left_out) == (8, [])


def test_a_word_that_stands_for_a_section_can_be_opened() -> None:
    config, _ = change("tokenizer.kind=unigram", "tokenizer.size=500")
    assert (config.tokenizer.kind, config.tokenizer.size) == ("unigram", 500)


@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
@pytest.mark.parametrize("task", ["classification", "tagging", "language-model"])
def test_every_family_of_every_task(task: str, family: str) -> None:
    stack = "decoder" if task == "language-model" else "encoder"
    files = {"classification": "a.tsv", "tagging": "a.conll", "language-model": "a.txt"}[task]
    text = f'task = "{task}"\ndata.train = {{files = "{files}"}}\nmodel.{stack} = {{num_heads = 2, hidden_dim = 8}}'
    fitted = fit(TASKS[task], tomllib.loads(text), [f"model.{stack}.family={family}"])
    config: Any = parse(text, fitted.overrides)
    assert getattr(config.model, stack).family == family
