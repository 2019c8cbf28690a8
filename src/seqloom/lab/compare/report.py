"""The table and the picture of a comparison, and its files: compare.md, compare.svg, compare.json.

Quality and time are in tables of their own: with a budget in steps, the first is the same at every repetition, to the
last digit; the second never is.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

from seqloom import __version__
from seqloom.files import write_whole
from seqloom.lab.chart import Axis, Intervals, Lines, Panel, Series, draw
from seqloom.lab.compare.findings import Finding, Reference
from seqloom.lab.compare.grid import Grid
from seqloom.lab.compare.plan import Plan
from seqloom.lab.experiment import Table
from seqloom.lab.page import align, write_table
from seqloom.predict.scorecard import UNLIKE

_MOST_CURVES = 8


class Report:
    """Everything that is shown of a comparison."""

    def __init__(self, plan: Plan, findings: Sequence[Finding]) -> None:
        self.plan, self.findings = plan, findings
        self.metric = plan.trials[0].metric
        signatures = (one.estimate.signature for one in findings if one.estimate is not None)
        self._digits = 2 if next(signatures, "") else 4
        self.notes = list(self._list_notes())

    @property
    def failed(self) -> bool:
        """Whether some training failed."""
        return any(finding.failures for finding in self.findings)

    def tell(self) -> str:
        """The report as plain text."""
        parts = [f"{table.title}\n{align(table)}" for table in (self.tabulate_quality(), self.tabulate_times())]
        return "\n\n".join([*parts, *self.notes])

    def write(self) -> dict[str, Any]:
        """Write the files; returns what the JSON holds."""
        folder, facts = self.plan.wish.folder, self.list_facts()
        folder.mkdir(parents=True, exist_ok=True)
        picture = f"{self.metric} of {len(self.findings)} cells with 95% intervals"
        write_whole(folder / "compare.svg", draw(self.draw_panels(), picture).encode())
        write_whole(folder / "compare.json", (json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode())
        parts = [f"# {self._name()}", f"![{picture}](compare.svg)"]
        parts += [
            f"**{table.title}**\n\n{write_table(table)}" for table in (self.tabulate_quality(), self.tabulate_times())
        ]
        parts += [*self.notes, f"Made by `{self.plan.wish.command}`; [every number](compare.json)."]
        write_whole(folder / "compare.md", ("\n\n".join(parts) + "\n").encode())
        return facts

    def tabulate_quality(self) -> Table:
        """How good each cell is, and how far from the best."""
        plan = self.plan
        shares, several = plan.grid.shares != (1.0,), plan.wish.seeds > 1
        head = ["", *(["records"] if shares else []), "width", "weights", self.metric, "95% interval"]
        head += [*(["each seed"] if several else []), "from the best", "95% interval", "p"]
        rows = []
        for one in self.findings:
            cells = [one.cell.name, *([_span(one.records)] if shares else []), str(one.width.model_dim)]
            cells += [self._spell_weights(one), *self._spell_estimate(one)]
            cells += [*([self._spell_seeds(one)] if several else []), *self._spell_reference(one)]
            rows.append(cells)
        return Table(self._describe_quality(), head, rows)

    def tabulate_times(self) -> Table:
        """What each cell took: means over its seeds."""
        rows = []
        for one in self.findings:
            done = list(one.outcomes.values())
            rows.append([one.cell.name, *(_spell_times(done) if done else ["failed", "", "", ""])])
        title = "What it took, the mean over seeds; this differs from one repetition to the next"
        if self.plan.task.train.clock == "processor":
            title += "; seconds and minutes are of processor time"
        return Table(title, ["", "tokens/s", "peak memory", "minutes of training", "seconds to answer"], rows)

    def draw_panels(self) -> list[Panel]:
        """Quality over the data, over a number, or cell by cell; and validation while training."""
        known = [one for one in self.findings if one.estimate is not None]
        if not known:
            return [Intervals(self.metric, Axis(self.metric), [])]
        return [self._draw_quality(known), *self._draw_curves(known)]

    def list_facts(self) -> dict[str, Any]:
        """What the JSON holds; `times` differ at every repetition."""
        plan, wish = self.plan, self.plan.wish
        return {
            "command": wish.command,
            "seqloom": __version__,
            "task": plan.task.task,
            "metric": self.metric,
            "lower_is_better": plan.lower_is_better,
            "signature": next((one.estimate.signature for one in self.findings if one.estimate is not None), ""),
            "judged_by": plan.trials[0].split,
            "records": next((o["records"] for one in self.findings for o in one.outcomes.values()), 0),
            "budget": str(plan.task.train.budget) if plan.task.train.budget else "the default",
            "over": {axis.key: list(axis.values) for axis in plan.grid.axes},
            "shares": list(plan.grid.shares),
            "seeds": sorted({trial.seed for trial in plan.trials}),
            "cells": [self._describe(one) for one in self.findings],
            "notes": self.notes,
            "times": {
                one.cell.name: {seed: _list_times(o) for seed, o in one.outcomes.items()} for one in self.findings
            },
        }

    def _describe(self, one: Finding) -> dict[str, Any]:
        first = self.findings[0].width.weights
        return {
            "name": one.cell.name,
            "values": dict(zip((axis.key for axis in self.plan.grid.axes), one.cell.values, strict=True)),
            "share": one.cell.share,
            "training_records": list(one.records),
            "model_dim": one.width.model_dim,
            "weights": one.width.weights,
            "weights_beside_the_first": one.width.weights / first - 1.0,
            "steps": [outcome["steps"] for outcome in one.outcomes.values()],
            "value": None if one.estimate is None else one.estimate.value,
            "interval": None if one.estimate is None else [one.estimate.low, one.estimate.high],
            "each_seed": {seed: measure.value for seed, measure in one.measures.items()},
            "from_the_best": _describe_reference(one.best),
            "from_the_first": _describe_reference(one.first),
            "failed": dict(one.failures),
            "runs": [trial.cell.name_folder(trial.seed) for trial in self.plan.trials if trial.cell == one.cell],
        }

    def _name(self) -> str:
        over = " and ".join(axis.key for axis in self.plan.grid.axes) or "shares of the data"
        return f"{self.plan.task.task}: {over} compared"

    def _describe_quality(self) -> str:
        plan = self.plan
        budget = f"{plan.task.train.budget or 'the default budget'} each"
        count = next((o["records"] for one in self.findings for o in one.outcomes.values()), 0)
        seeds = f", {plan.wish.seeds} seeds" if plan.wish.seeds > 1 else ", one seed"
        better = "lower is better" if plan.lower_is_better else "higher is better"
        return f"{self.metric} ({better}) on {count:,} {plan.trials[0].split} records, {budget}{seeds}"

    def _list_notes(self) -> Iterator[str]:
        plan, wish = self.plan, self.plan.wish
        yield from plan.notes
        what = "records" if wish.seeds == 1 else "records and of seeds, both drawn again"
        beside = "the best cell with as much data" if len(plan.grid.shares) > 1 else "the best cell"
        yield (
            f"Intervals are of {what} (bootstrap, 1,000 draws). `from the best` compares with {beside}; p is that of a "
            "paired test over records (approximate randomisation), corrected for the number of cells (Holm): it says "
            "whether these trained models differ. The interval of the difference counts the seeds, too."
        )
        if wish.match_weights:
            yield "Widths are chosen so that each cell has as many weights as the first, or as near as its heads allow."
        else:
            few, many = (f(one.width.weights for one in self.findings) for f in (min, max))
            chosen = any(axis.key.endswith(".model_dim") for axis in plan.grid.axes)
            if many > 1.05 * few and not chosen:
                yield f"The cells have {few:,} to {many:,} weights; --match weights makes them equal."
        if len(plan.grid.shares) > 1:
            yield (
                "A share of the data is of the training records alone, and each contains the smaller ones. The "
                "tokeniser, the labels and the size of the model follow all of them."
            )
            if plan.task.batch.tokens is None:
                yield "Batches follow the data: with less data a step has fewer tokens, unless batch.tokens is given."
        if plan.task.train.budget is not None and plan.task.train.budget.unit == "minutes":
            yield "The budget is time, so a repetition does not give the same numbers; a budget in steps does."
        for one in self.findings:
            for seed, reason in one.failures.items():
                yield f"{one.cell.name}, seed {seed}, failed: {reason}. The same command tries it again."
        if any(one.estimate is not None and one.best is None and not one.is_best for one in self.findings):
            yield f"`not comparable`: {self.metric} does not tell which cell is better, because {_why(self.metric)}."
        for note in dict.fromkeys(n for one in self.findings for o in one.outcomes.values() for n in o["notes"]):
            yield f"Note: {note}."

    def _spell_weights(self, one: Finding) -> str:
        first = self.findings[0].width.weights
        return f"{one.width.weights:,}" + (
            f" ({one.width.weights / first - 1:+.1%})" if self.plan.wish.match_weights else ""
        )

    def _spell_estimate(self, one: Finding) -> tuple[str, str]:
        if one.estimate is None:
            return "failed", ""
        value, low, high = (self._spell(x) for x in (one.estimate.value, one.estimate.low, one.estimate.high))
        return value, f"{low} to {high}"

    def _spell_seeds(self, one: Finding) -> str:
        values = {seed: self._spell(measure.value) for seed, measure in one.measures.items()}
        return " ".join(values.get(seed, "failed") for seed in sorted({*values, *one.failures}))

    def _spell_reference(self, one: Finding) -> tuple[str, str, str]:
        if one.estimate is None:
            return "", "", ""
        if one.best is None:
            return "best" if one.is_best else "not comparable", "", ""
        found = one.best.comparison
        p = "< 0.001" if one.best.adjusted < 0.001 else f"{one.best.adjusted:.3f}"
        return self._spell(found.difference, "+"), f"{self._spell(found.low)} to {self._spell(found.high)}", p

    def _spell(self, value: float, sign: str = "") -> str:
        return f"{value:{sign}.{self._digits}f}"

    def _draw_quality(self, known: Sequence[Finding]) -> Panel:
        title = f"{self.metric}, 95% intervals"
        if (axis := _find_number(self.plan.grid)) is None:
            rows = [(o.cell.name, o.estimate.value, (o.estimate.low, o.estimate.high)) for o in known if o.estimate]
            return Intervals(title, Axis(self.metric), rows)
        number, label = axis
        series: dict[str, list[tuple[float, Finding]]] = {}
        for one in known:
            name, at = _place(self.plan.grid, one, number)
            series.setdefault(name, []).append((at, one))
        drawn = [
            Series(
                name or self.metric,
                [(at, one.estimate.value) for at, one in sorted(points, key=lambda p: p[0]) if one.estimate],
                [
                    (one.estimate.low, one.estimate.high)
                    for _, one in sorted(points, key=lambda p: p[0])
                    if one.estimate
                ],
            )
            for name, points in series.items()
        ]
        places = sorted({at for points in series.values() for at, _ in points})
        spread = places[0] > 0 and places[-1] / places[0] >= 8
        x = Axis(
            label,
            log=spread,
            low=places[0] if spread else None,
            high=places[-1] if spread else None,
            ticks=tuple(places),
        )
        return Lines(title, x, Axis(self.metric), drawn)

    def _draw_curves(self, known: Sequence[Finding]) -> list[Panel]:
        """Validation while training, of the first seed, with the most data."""
        most = max(one.cell.share for one in known)
        chosen = [one for one in known if one.cell.share == most]
        if len(chosen) > _MOST_CURVES:
            return []
        judge = next(iter(chosen[0].outcomes.values()))["judged_by"]
        series = []
        for one in chosen:
            seed, outcome = next(iter(one.outcomes.items()))
            points = [(float(step), float(values[judge])) for step, values in outcome["curve"] if judge in values]
            series += [Series(one.cell.title or f"seed {seed}", points)] if len(points) > 1 else []
        return [Lines(f"validation, {judge}, first seed", Axis("steps"), Axis(judge), series)] if series else []


def _why(metric: str) -> str:
    return UNLIKE.get(metric, "the cells did not answer the same records")


def _find_number(grid: Grid) -> tuple[int | None, str] | None:
    """What quality is a curve over: the data, or a key whose values are numbers."""
    if len(grid.shares) > 1:
        return None, "share of the training data"
    return next(((at, axis.key) for at, axis in enumerate(grid.axes) if axis.is_numeric and len(axis.values) > 2), None)


def _place(grid: Grid, one: Finding, number: int | None) -> tuple[str, float]:
    """The name of the curve and the place on it."""
    if number is None:
        return one.cell.title, one.cell.share
    others = [value for at, value in enumerate(one.cell.values) if at != number]
    return ", ".join(others), float(one.cell.values[number])


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _spell_times(done: Sequence[dict[str, Any]]) -> list[str]:
    memory = [one["memory"] for one in done if one["memory"]]
    answering = mean(one["answering"] for one in done)
    return [
        f"{mean(one['tokens_per_second'] for one in done):,.0f}",
        f"{mean(memory) / 2**20:,.0f} MB" if memory else "not known",
        f"{mean(one['seconds'] for one in done) / 60:.2f}",
        f"{answering:,.1f}" if answering >= 1.0 else f"{answering:.2f}",
    ]


def _list_times(outcome: dict[str, Any]) -> dict[str, Any]:
    return {key: outcome[key] for key in ("seconds", "tokens_per_second", "memory", "answering")}


def _describe_reference(reference: Reference | None) -> dict[str, Any] | None:
    if reference is None:
        return None
    facts = asdict(reference.comparison)
    del facts["name"]
    return {"cell": reference.name, **facts, "p_corrected": reference.adjusted}
