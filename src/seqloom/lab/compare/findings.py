"""What the trainings of a comparison found: means over seeds with intervals, and how far each cell is from the best.

The best cell is that of its share of the data, since nobody compares a model of all data with one of a tenth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seqloom.lab.compare.grid import Cell
from seqloom.lab.compare.plan import Plan, Trial
from seqloom.lab.compare.trial import Outcome, read_outcome
from seqloom.lab.compare.widths import Width
from seqloom.metrics.measure import Measure
from seqloom.metrics.repetitions import adjust, compare_means, estimate_mean
from seqloom.metrics.resampling import Comparison, Estimate
from seqloom.metrics.translation import TOKENIZED
from seqloom.predict.scorecard import is_comparable


@dataclass(frozen=True)
class Finding:
    """A cell, with what all its seeds found."""

    cell: Cell
    width: Width
    records: Sequence[int]
    """How many records each seed trained on."""
    outcomes: Mapping[int, Outcome]
    """By seed, of those that did not fail."""
    failures: Mapping[int, str]
    measures: Mapping[int, Measure] = field(default_factory=dict)
    estimate: Estimate | None = None
    """None if all failed."""
    is_best: bool = False
    """Whether it is the best cell with as much data."""
    best: "Reference | None" = None
    """Beside the best cell with as much data; None if this is the best, or cannot be compared with it."""
    first: "Reference | None" = None
    """Beside the first cell with as much data; None if this is the first, or cannot be compared with it."""


@dataclass(frozen=True)
class Reference:
    """How far a cell is from another one."""

    name: str
    comparison: Comparison
    adjusted: float
    """p, as large as it must be for all comparisons with this cell to be believed together."""


def collect(plan: Plan) -> list[Finding]:
    """The findings of all cells, in the order of the grid."""
    found = [_gather(plan, cell) for cell in plan.grid.cells]
    for share in plan.grid.shares:
        numbers = [at for at, one in enumerate(found) if one.cell.share == share and one.estimate is not None]
        if not numbers:
            continue
        sign = -1.0 if plan.lower_is_better else 1.0
        best = max(numbers, key=lambda at: (sign * _value(found[at]), -at))
        beside_best, beside_first = (
            _compare_all([found[at] for at in numbers], found[one]) for one in (best, numbers[0])
        )
        for at, one, other in zip(numbers, beside_best, beside_first, strict=True):
            found[at] = replace(found[at], is_best=at == best, best=one, first=other)
    return found


def _compare_all(findings: Sequence[Finding], reference: Finding) -> list[Reference | None]:
    """Each beside one of them; None for itself, and where the two cannot be compared."""
    compared = [None if one is reference else _compare(one, reference) for one in findings]
    adjusted = iter(adjust([one.p for one in compared if one is not None]))
    return [None if one is None else Reference(reference.cell.name, one, next(adjusted)) for one in compared]


def _value(finding: Finding) -> float:
    assert finding.estimate is not None
    return finding.estimate.value


def _gather(plan: Plan, cell: Cell) -> Finding:
    trials = [trial for trial in plan.trials if trial.cell == cell]
    ended = {trial.seed: read_outcome(trial) or {"failed": "it was not trained"} for trial in trials}
    outcomes = {seed: one["found"] for seed, one in ended.items() if "found" in one}
    failures = {seed: one["failed"] for seed, one in ended.items() if "failed" in one}
    measures = {trial.seed: _rebuild(plan, trial, outcomes[trial.seed]) for trial in trials if trial.seed in outcomes}
    return Finding(
        cell,
        plan.widths[cell.title],
        plan.records[cell.name],
        outcomes,
        failures,
        measures,
        estimate_mean([*measures.values()]) if measures else None,
    )


def _rebuild(plan: Plan, trial: Trial, outcome: Outcome) -> Measure:
    """The metric of rows that were written down."""
    metrics = TOKENIZED if trial.tokenized else plan.task.metrics(outcome["labels"])
    metric = next(metric for metric in metrics if metric.name == trial.metric)
    empty = metric.measure((), ())
    return replace(empty, rows=np.array(outcome["rows"], np.float64), signature=outcome["signature"])


def _compare(finding: Finding, other: Finding) -> Comparison | None:
    """The difference over the seeds that both have; None where the rows are not about the same."""
    seeds = [seed for seed in finding.measures if seed in other.measures]
    pairs = [(finding.measures[seed], other.measures[seed]) for seed in seeds]
    if not pairs or not all(len(a.rows) == len(b.rows) and is_comparable(a, b) for a, b in pairs):
        return None
    return compare_means([a for a, _ in pairs], [b for _, b in pairs])
