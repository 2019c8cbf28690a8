"""From what trainings wrote down to the table, the picture and the JSON."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from seqloom.lab.chart import Intervals, Lines
from seqloom.lab.compare.findings import collect
from seqloom.lab.compare.grid import read_grid
from seqloom.lab.compare.plan import Plan, Trial, Wish
from seqloom.lab.compare.report import Report
from seqloom.lab.compare.trial import fail, find_outcome, read_outcome, write_outcome
from seqloom.lab.compare.widths import Width
from seqloom.tasks.configuration import parse

RECORDS = 300
FAMILIES = "model.encoder.family=transformer,recurrent,convolutional"


def answer(share: float, seed: int) -> dict[str, Any]:
    right = np.random.default_rng(seed).random(RECORDS) < share
    return {
        "records": RECORDS,
        "rows": [[float(one), 1.0] for one in right],
        "signature": "",
        "notes": [],
        "labels": ["a", "b"],
        "answering": 0.1,
        "judged_by": "accuracy",
        "steps": 40,
        "predictions": 4000,
        "curve": [[20, {"accuracy": 0.5, "loss": 1.0}], [40, {"accuracy": share, "loss": 0.5}]],
        "seconds": 60.0 * seed,
        "tokens_per_second": 1000.0,
        "memory": 1 << 28,
    }


def make_plan(folder: Path, over: str, qualities: dict[str, float | None], shares: str | None = None) -> Plan:
    """A comparison whose trainings have ended: each cell as good as is said, or failed."""
    task: Any = parse('task = "classification"\ndata.train.files = "x.tsv"\ntrain.steps = 40')
    grid = read_grid([over], shares)
    plan = Plan(Wish(folder / "x.toml", over=(over,), seeds=2, shares=shares, out=folder), grid, task)
    plan.widths = {cell.title: Width(32, 1000) for cell in grid.cells}
    plan.records = {cell.name: [100, 100] for cell in grid.cells}
    for seed in (1, 2):
        for cell in grid.cells:
            name = str(folder / cell.name_folder(seed))
            trial = Trial(cell, seed, "x.toml", (), name, "", f"key of {name}", "test", "accuracy", tokenized=False)
            quality = qualities[cell.name]
            if quality is None:
                fail(trial, "the loss was not finite")
            else:
                write_outcome(trial, {"found": answer(quality, seed + 7 * grid.cells.index(cell))})
            plan.trials.append(trial)
    return plan


def test_the_table_says_which_is_best_and_what_failed(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, FAMILIES, {"transformer": 0.7, "recurrent": 0.9, "convolutional": None})
    findings = collect(plan)
    first, best, failed = findings
    assert [one.is_best for one in findings] == [False, True, False]
    assert first.best is not None
    assert first.best.adjusted < 0.01
    assert first.best.comparison.high < 0.0
    assert first.first is None
    assert best.first is not None
    assert best.first.comparison.difference == pytest.approx(-first.best.comparison.difference)
    assert failed.estimate is None

    report = Report(plan, findings)
    assert report.failed
    head, rows = report.tabulate_quality().head, report.tabulate_quality().rows
    assert all(len(row) == len(head) for row in rows)
    assert [row[head.index("from the best")] for row in rows][1:] == ["best", ""]
    assert rows[2][head.index("accuracy")] == "failed"
    assert any("convolutional, seed 2, failed: the loss was not finite" in note for note in report.notes)
    facts = report.write()
    assert facts == json.loads((tmp_path / "compare.json").read_text()) | {
        key: facts[key]
        for key in ("cells", "times")  # seeds are numbers here and words there
    }
    assert "minutes" not in json.dumps({key: value for key, value in facts.items() if key != "times"})
    ElementTree.parse(tmp_path / "compare.svg")
    assert "compare.svg" in (tmp_path / "compare.md").read_text()


def test_lower_may_be_better(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, FAMILIES, {"transformer": 0.7, "recurrent": 0.9, "convolutional": 0.8})
    plan.lower_is_better = True
    assert [one.is_best for one in collect(plan)] == [True, False, False]


def test_cells_are_compared_with_the_best_of_as_much_data(tmp_path: Path) -> None:
    over = "model.encoder.family=transformer,recurrent"
    qualities = {"transformer, 10% of the data": 0.6, "recurrent, 10% of the data": 0.8}
    qualities |= {"transformer, 100% of the data": 0.95, "recurrent, 100% of the data": 0.85}
    plan = make_plan(tmp_path, over, dict(qualities), "0.1,1")
    findings = collect(plan)
    assert [one.is_best for one in findings] == [False, True, True, False]
    quality, *_ = Report(plan, findings).draw_panels()
    assert isinstance(quality, Lines)
    assert [one.name for one in quality.series] == ["transformer", "recurrent"]
    assert [x for x, _ in quality.series[0].points] == [0.1, 1.0]


def test_a_key_of_numbers_is_a_curve_and_words_are_rows(tmp_path: Path) -> None:
    numbers = make_plan(tmp_path, "model.encoder.num_layers=1,2,4", {f"num_layers {n}": 0.8 for n in (1, 2, 4)})
    (tmp_path / "words").mkdir()
    words = make_plan(tmp_path / "words", FAMILIES, dict.fromkeys(("transformer", "recurrent", "convolutional"), 0.8))
    curve, rows = (Report(plan, collect(plan)).draw_panels()[0] for plan in (numbers, words))
    assert isinstance(curve, Lines)
    assert [x for x, _ in curve.series[0].points] == [1.0, 2.0, 4.0]
    assert isinstance(rows, Intervals)
    assert [name for name, _, _ in rows.rows] == ["transformer", "recurrent", "convolutional"]


def test_a_result_of_something_else_does_not_count(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, FAMILIES, {"transformer": 0.7, "recurrent": 0.9, "convolutional": None})
    trial = plan.trials[0]
    assert find_outcome(trial) is not None
    trial.outcome.write_text(trial.outcome.read_text().replace("key of", "another key of"))
    assert read_outcome(trial) is None
    failed = plan.trials[2]
    assert find_outcome(failed) is None, "what failed is tried again"
    assert read_outcome(failed) is not None
