"""What would happen on a GPU, on a device that pretends to be one (tests/pretended): none was at hand."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REHEARSAL = Path(__file__).parents[1] / "pretended" / "rehearsal.py"
MOST_WAITS = 2
"""For the device, in a step of training."""
FAMILIES = [
    "transformer-grouped-encoder",
    "recurrent-lstm-copy-attention-source@quick",
    "convolutional-dilated@quick",
    "short-source@bfloat16",
    "short-alibi@bfloat16",
    "loaded:translation/transformer",
    "process",
]
"""One of each kind."""


def rehearse(*names: str) -> Iterator[dict[str, Any]]:
    """What happened with each, in a process of its own, which has the device."""
    done = subprocess.run([sys.executable, str(REHEARSAL), *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    yield from map(json.loads, done.stdout.splitlines())


def check(report: dict[str, Any]) -> None:
    assert not report["faults"], report
    assert sum(report["training"].values()) <= MOST_WAITS, report["training"]
    assert all(count <= 1 for count in report["steps"].values()), report["where"]


def test_one_of_each_kind() -> None:
    """The numbers are the same, no tensor is on another device, no kernel gets a pointer to one, copies are pinned."""
    reports = {report["name"]: report for report in rehearse(*FAMILIES)}
    for name in FAMILIES:
        check(reports[name])
    products = [what for what in reports["short-source@bfloat16"]["products"] if "cross_entropy" in what]
    assert products  # the output layer takes part in mixed precision
    assert all("bfloat16" in what for what in products), products
    # Packed attention is torch's: three in two layers, at two steps. Positions that act on scores stay in the open.
    assert reports["short-source@bfloat16"]["varlen"] == 3 * 2 * 2
    assert reports["short-alibi@bfloat16"]["varlen"] == 0


@pytest.mark.long
def test_a_quarter_of_everything_that_can_be_trained() -> None:
    for report in rehearse("--quarter"):
        check(report)
    mixed = "short", "recurrent-lstm-additive-source", "convolutional-dot-source"
    for report in rehearse(*(f"{name}@bfloat16" for name in mixed)):
        assert not report["faults"], report


@pytest.mark.long
@pytest.mark.parametrize("family", ["transformer", "recurrent", "convolutional"])
def test_every_verb_of_a_loaded_model(family: str) -> None:
    tasks = "translation", "language-model", "masked-language-model", "classification", "tagging"
    for report in rehearse(*(f"loaded:{task}/{family}" for task in tasks)):
        check(report)
