"""`verify --deep` finds nothing in sound models, and what is wrong with others."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from seqloom.predict.invariance import (
    ENGLISH,
    STEPS_TOLERANCE,
    TOLERANCE,
    check_invariance,
    check_steps,
    compare,
    find_lines,
)
from seqloom.predict.load import open_predictor
from seqloom.predict.results import Classification, Generation, Vector
from small_corpora import sentences
from small_runs import Runs

LINES = [*sentences(3, seed=4), "the cat", "a"]
SEARCHES = ("", ", beam of 4", ", drawn")
PARTS = {
    "translation": ["embed", *(f"translate{how}" for how in SEARCHES), "score", "steps"],
    "translation/recurrent": ["embed", *(f"translate{how}" for how in SEARCHES), "score", "steps"],
    "translation/convolutional": ["embed", *(f"translate{how}" for how in SEARCHES), "score", "steps"],
    "running-text": ["embed", *(f"generate{how}" for how in SEARCHES), "score", "steps"],
    "masked-language-model": ["embed", "fill", "score"],
    "bidirectional-language-model": ["embed", "score"],
    "classification": ["embed", "classify"],
    "tagging": ["embed", "tag"],
}


@pytest.mark.parametrize("name", PARTS)
def test_models_answer_each_line_by_itself(name: str, runs: Runs) -> None:
    checks = list(check_invariance(open_predictor(runs(name)), LINES))
    assert [check.part for check in checks] == PARTS[name]
    assert [check.fault for check in checks] == [""] * len(checks)
    for check in checks:
        assert check.lines == len(LINES)
        assert 0 <= check.difference <= (STEPS_TOLERANCE["float32"] if check.part == "steps" else TOLERANCE)


def centre(_: object, __: object, x: Tensor) -> Tensor:
    """What batch normalisation would do: each token's vector depends on all others of the batch."""
    return x - x.mean((0, 1))


@pytest.mark.parametrize("name", ["classification", "running-text"])
def test_a_model_that_looks_at_the_batch_is_found_out(name: str, runs: Runs) -> None:
    model: Any = open_predictor(runs(name))
    model.network.embedding.register_forward_hook(centre)
    faults = {check.part: check.fault for check in check_invariance(model, LINES)}
    assert "has a different answer among all than alone" in faults["embed"]
    assert sum(map(bool, faults.values())) >= 2


def test_a_decoder_that_loses_count_is_found_out(runs: Runs) -> None:
    model: Any = open_predictor(runs("running-text"))
    assert not check_steps(model, LINES).fault
    step = model.network.step
    model.network.step = lambda ids, state: step(ids if state.position != 2 else ids * 0, state)
    assert "has different scores token by token than as a whole" in check_steps(model, LINES).fault


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (Generation("a", -2.0, ("a",), (-2.0,)), Generation("a", -2.5, ("a",), (-2.0,)), 0.25),
        (Generation("a", 0.5), Generation("a", 0.25), 0.25),
        (Generation("a", 0.5), Generation("b", 0.5), math.inf),
        (Generation("a", 0.5, ("a",)), Generation("a", 0.5), math.inf),
        (Generation("a", math.nan), Generation("a", 0.5), math.inf),
        (Generation("a", -math.inf), Generation("a", -math.inf), 0.0),
        (Classification("x", 0.5, {"x": 0.5}), Classification("x", 0.5, {"y": 0.5}), math.inf),
        (Classification("x", 0.5, {"x": 0.5}), Classification("x", 0.5, {"x": 0.75}), 0.25),
        (Vector(np.array([1.0, 4.0])), Vector(np.array([1.0, 3.0])), 0.25),
        (Vector(np.zeros(2)), Vector(np.zeros(3)), math.inf),
    ],
)
def test_answers_are_compared_field_by_field(one: object, other: object, difference: float) -> None:
    assert compare(one, other) == difference


def test_lines_are_those_of_the_run_while_they_are_there(runs: Runs, tmp_path: Path) -> None:
    folder = runs("translation")
    model = open_predictor(folder)
    origin, lines = find_lines(folder, model)
    assert origin == "the valid data"
    assert 10 < len(set(lines)) <= 24
    assert set(lines) <= set(sentences(60, seed=2))
    assert find_lines(tmp_path, model)[1] == ENGLISH
    (tmp_path / "own").write_text("the cat\n\n" + "the dog " * 100 + "\n", encoding="utf-8")
    _, (short, long) = find_lines(tmp_path, model, tmp_path / "own")
    assert (short, len(long.split())) == ("the cat", 48)
