"""The page of a run: whatever its log holds, there is one."""

import json
from pathlib import Path
from typing import Any

import pytest

from saved_pages import read_page
from seqloom.runs.run import TrainingRun
from seqloom.training.report import write_report

STEP: dict[str, Any] = {"loss": 2.0, "norm": 1.0, "rate": 0.5, "count": 10}
CONFIG = 'task = "translation"\n[data.train]\nsource = "a"\ntarget = "b"\n'


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    (tmp_path / "config.toml").write_text(CONFIG)
    return TrainingRun(tmp_path)


def add_steps(run: TrainingRun, first: int, last: int) -> None:
    for step in range(first, last):
        run.log.add(step=step, **STEP)


@pytest.mark.parametrize(
    "line",
    [
        {"step": 2, "valid": {"loss": 1.0}, "samples": [{"text": "a \u2028 b", "answer": "c \u2029 \x85 \x0b d"}]},
        {"step": 2, "valid": {"loss": 1.0}, "samples": ["a \u2028 b → c \u2029 \x85 \x0b d"]},
        {"step": 2, "valid": {"loss": 1.0}, "samples": ["half of a character: \ud83d", {"text": 3, "answer": None}]},
        {"step": 2, "valid": {"loss": 700.0, "perplexity": 1.0142320547350045e304}},
        {"step": 2, "valid": {"loss": 1.0, "perplexity": 1e308}, "samples": []},
        {"step": 2, "valid": {"loss": float("inf"), "perplexity": float("inf")}},
        {"step": 2, "valid": {"loss": float("nan"), "perplexity": float("nan")}},
        {"step": 2, "loss": -1.7e308, "norm": 1.7e308, "rate": 1.0},
        {"step": 2, "loss": 10**400, "norm": -(10**400), "rate": True},
        {"step": 10**30, "loss": 1.0},
        {"step": -5, "loss": 1.0},
        {"step": 2, "loss": float("nan"), "norm": float("inf"), "rate": 1.0, "layers": {"a": float("nan"), "b": 1.0}},
        {"step": 2, "layers": {"a": 0.0}},
        {"valid": {"loss": 1.0}},
        {"step": "two", "loss": "low"},
        {"step": 2, "valid": 3, "samples": 4, "layers": [5]},
        {"step": 2, "valid": {"loss": 1.0}, "labels": 3, "confusions": "x", "notes": 4},
        {"step": 2, "valid": {"loss": 1.0}, "labels": [["a", 1.0], 3], "confusions": [[1, 2]]},
    ],
)
def test_any_numbers_and_texts_make_a_page(line: dict[str, Any], run: TrainingRun) -> None:
    add_steps(run, 0, 2)
    with run.log.path.open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n")
    add_steps(run, 3, 5)
    history = read_page(write_report(run))["/run"]
    assert len(history["train"]["steps"]) >= 4
    assert history["train"]["loss"][:2] == [2.0, 2.0]


def test_a_sample_is_shown_as_it_is(run: TrainingRun) -> None:
    run.log.add(step=1, valid={"loss": 1.0}, samples=[{"text": "a\u2028b", "answer": "</script>", "wanted": "c"}])
    path = write_report(run)
    assert read_page(path)["/run"]["samples"]["at"][0]["samples"] == [
        {"text": "a\u2028b", "answer": "</script>", "wanted": "c"}
    ]
    assert b"a\xe2\x80\xa8b" not in path.read_bytes()  # it is packed, so that nothing of it is markup


def test_damaged_lines_are_counted(run: TrainingRun) -> None:
    add_steps(run, 0, 3)
    with run.log.path.open("ab") as file:
        file.write(b'{"step": 3, "lo\x00\xff\n[1, 2]\n' + b"[" * 100_000 + b"\n")
    add_steps(run, 4, 6)
    history = read_page(write_report(run))["/run"]
    assert history["notes"] == ["3 lines of log.jsonl cannot be read and are left out."]
    assert history["train"]["steps"] == [0, 1, 2, 4, 5]


def test_a_run_without_a_configuration_has_a_page_that_says_so(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    add_steps(run, 1, 3)
    history = read_page(write_report(run))["/run"]
    assert "there is no such file" in history["notes"][0]
    assert history["train"]["loss"] == [2.0, 2.0]


def test_a_report_asks_nobody_for_anything(run: TrainingRun) -> None:
    page = write_report(run).read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert "connect-src" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
