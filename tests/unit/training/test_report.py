"""The page of a run: whatever its log holds, there is one."""

from pathlib import Path
from typing import Any

import pytest

from seqloom.runs.run import Run
from seqloom.training.report import write_report

STEP: dict[str, Any] = {"loss": 2.0, "norm": 1.0, "rate": 0.5, "count": 10}


def add_steps(run: Run, first: int, last: int) -> None:
    for step in range(first, last):
        run.log.add(step=step, **STEP)


@pytest.mark.parametrize(
    "line",
    [
        {"step": 2, "valid": {"loss": 1.0}, "samples": ["a \u2028 b → c \u2029 \x85 \x0b d"]},
        {"step": 2, "valid": {"loss": 700.0, "perplexity": 1.0142320547350045e304}},
        {"step": 2, "valid": {"loss": 1.0, "perplexity": 1e308}, "samples": []},
        {"step": 2, "valid": {"loss": float("inf"), "perplexity": float("inf")}},
        {"step": 2, "valid": {"loss": float("nan"), "perplexity": float("nan")}},
        {"step": 2, "loss": -1.7e308, "norm": 1.7e308, "rate": 1.0},
        {"step": 2, "loss": float("nan"), "norm": float("inf"), "rate": 1.0, "layers": {"a": float("nan"), "b": 1.0}},
        {"step": 2, "layers": {"a": 0.0}},
        {"valid": {"loss": 1.0}},
        {"step": "two", "loss": "low"},
        {"step": 2, "valid": 3, "samples": 4, "layers": [5]},
    ],
)
def test_any_numbers_and_texts_make_a_page(line: dict[str, Any], tmp_path: Path) -> None:
    run = Run(tmp_path)
    add_steps(run, 1, 3)
    run.log.add(step=1, valid={"loss": 2.0, "perplexity": 7.4, "other": 1.0})
    run.log.add(**line)
    page = write_report(run, {"task": "x"}, "use it").read_text()
    assert "Training loss" in page
    assert "nan" not in page
    for sample in line.get("samples") or () if isinstance(line.get("samples"), list) else ():
        assert sample in page


@pytest.mark.parametrize("damage", [b"\xff\xfe\x00", b'{"step": 1, "lo', b"[]", b"3", b"", b"\x00" * 100])
def test_a_damaged_line_is_left_out_and_said(damage: bytes, tmp_path: Path) -> None:
    run = Run(tmp_path)
    add_steps(run, 1, 3)
    with run.log.path.open("ab") as file:
        file.write(damage + b"\n")
    add_steps(run, 3, 5)
    page = write_report(run, {}, "").read_text()
    assert "1 of 5 lines of log.jsonl are damaged" in page
    assert "step 1" in page


def test_an_empty_log_makes_a_page(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.log.path.touch()
    assert "<h1>" in write_report(run, {}, "").read_text()
