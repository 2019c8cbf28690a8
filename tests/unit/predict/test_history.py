"""What a model card says of a training is true of the weights that were kept."""

import json
from pathlib import Path

import pytest

from seqloom.predict.export import read_history
from seqloom.tasks import Task
from seqloom.tasks.configuration import parse

LOG = [
    {"step": 1, "count": 10},
    {"step": 1, "valid": {"loss": 2.0, "bleu": 20.0}},
    {"step": 2, "count": 12},
    {"step": 2, "valid": {"loss": 1.0, "bleu": 15.0}},
]


def make_task(*overrides: str) -> Task:
    task = parse('task = "translation"\ndata.train = {source = "a", target = "b"}', overrides)
    assert isinstance(task, Task)
    return task


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in LOG))
    return path


@pytest.mark.parametrize(("judge_by", "bleu"), [("loss", 15.0), ("bleu", 20.0)])
def test_its_measures_are_those_of_the_best_validation(log: Path, judge_by: str, bleu: float) -> None:
    history = read_history(log, make_task(f"train.judge_by={judge_by}"), ())
    assert (history.steps, history.tokens) == (2, 22)
    assert dict(history.measures)["bleu"] == bleu


def test_an_average_of_weights_was_never_judged(log: Path) -> None:
    assert read_history(log, make_task("train.average=2"), ()).measures == ()
