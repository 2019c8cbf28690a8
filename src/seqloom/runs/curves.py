"""What a training's log says, as curves: losses, gradient norms, learning rate, validations, samples, speed.

A chart has a few hundred columns of pixels and a training may have a million steps, so curves are thinned: each point
stands for a stretch of steps, with the mean of its values, the lowest and the highest. What cannot be read, and what is
no number, is left out and counted.
"""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from seqloom.runs.log import Line
from seqloom.tasks.base import Judge

POINTS = 400
"""The most points of a curve."""
SHOWN_SAMPLES, SHOWN_CHARACTERS = 40, 600
"""The most validations whose samples are shown, and the most characters of a text in them."""
_MOMENT = 0.5
"""Speed over fewer seconds than these is more noise than speed."""
_LARGEST = 1e300  # what is larger is no measurement, and its sums are no numbers
_CURVES = ("loss", "norm", "rate")


@dataclass
class Validation:
    """One validation."""

    step: int
    measures: dict[str, float]
    samples: list[dict[str, str]]
    line: Line
    """All that the log has of it."""


@dataclass
class Curves:
    """The lines of a log, by what they are about."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    values: dict[str, "array[float]"] = field(default_factory=lambda: {name: array("d") for name in _CURVES})
    layers: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)
    odd: int = 0
    """Lines that are JSON, but neither a step nor a validation."""
    infinite: int = 0
    """Steps whose loss or gradient was no finite number."""

    def add(self, lines: Iterable[Line]) -> None:
        """Take in more lines."""
        for line in lines:
            step = as_number(line.get("step"))
            if step is None or not 0 <= step < 2**62:
                self.odd += 1
            elif isinstance(line.get("valid"), dict):
                self._add_validation(int(step), line)
            elif "loss" in line:
                self._add_step(int(step), line)
            else:
                self.odd += 1

    def _add_step(self, step: int, line: Line) -> None:
        numbers = [as_number(line.get(name)) for name in _CURVES]
        self.infinite += numbers[0] is None or numbers[1] is None
        self.steps.append(step)
        for name, number in zip(_CURVES, numbers, strict=True):
            self.values[name].append(math.nan if number is None else number)
        if isinstance(line.get("layers"), dict):
            self.layers.append((step, _keep_numbers(line["layers"])))

    def _add_validation(self, step: int, line: Line) -> None:
        samples = line.get("samples")
        found = [read_sample(sample) for sample in samples] if isinstance(samples, list) else []
        self.validations.append(Validation(step, _keep_numbers(line["valid"]), found, line))

    def find_best(self, judge: Judge) -> Validation | None:
        """The validation that the training took for the best."""
        scored = [
            (judge.score(one.measures), -one.step, one)
            for one in self.validations
            if judge.name in one.measures and "loss" in one.measures
        ]
        return max(scored, key=lambda one: one[:2])[2] if scored else None

    def thin_steps(self) -> dict[str, Any]:
        """The training loss, the gradient norm and the rate over steps."""
        size = max(1, -(-len(self.steps) // POINTS))
        thinned = {name: _summarise(values, size) for name, values in self.values.items()}
        return {
            "each": size,
            "steps": [*self.steps[size - 1 :: size], *(self.steps[-1:] if len(self.steps) % size else [])],
            **{name: means for name, (means, _, _) in thinned.items()},
            "low": thinned["loss"][1],
            "high": thinned["loss"][2],
        }

    def thin_layers(self) -> dict[str, Any]:
        """The gradient norm of each layer over steps; None where one has none."""
        names = list(dict.fromkeys(name for _, norms in self.layers for name in norms))
        kept = spread(self.layers, POINTS)
        return {
            "steps": [step for step, _ in kept],
            "norms": {name: [norms.get(name) for _, norms in kept] for name in names},
            "all": len(self.layers),
        }

    def thin_validations(self, best: Validation | None) -> dict[str, Any]:
        """Every measure of the validations over steps, and which records those besides the loss are of, if not all."""
        names = list(dict.fromkeys(name for one in self.validations for name in one.measures))
        kept = spread(self.validations, POINTS, best)
        return {
            "steps": [one.step for one in kept],
            "measures": {name: [one.measures.get(name) for one in kept] for name in names},
            "all": len(self.validations),
            "sample": next((str(one.line["sample"]) for one in reversed(kept) if "sample" in one.line), ""),
        }

    def thin_samples(self, best: Validation | None) -> dict[str, Any]:
        """The samples of validations over steps."""
        shown = [one for one in self.validations if one.samples]
        kept = spread(shown, SHOWN_SAMPLES, best)
        return {"all": len(shown), "at": [{"step": one.step, "samples": one.samples} for one in kept]}


def read_sample(sample: Any) -> dict[str, str]:
    """A sample of a log; older versions wrote a text and its answer as one string."""
    if isinstance(sample, dict):
        parts = [sample.get(name, "") for name in ("text", "answer", "wanted")]
    else:
        before, _, after = str(sample).partition(" → ")
        parts = [before, after, ""]
    return dict(zip(("text", "answer", "wanted"), map(_shorten, parts), strict=True))


def find_speed(lines: Sequence[Line]) -> dict[str, Any]:
    """How fast a training was over its steps, by the lines of speed.jsonl, and how much memory it held."""
    points: list[tuple[int, float, float | None]] = []
    brief = points[:]  # what was measured for a moment only is drawn where there is nothing better
    for before, after in pairwise(lines):
        if "start" in after:
            continue
        first = [as_number(before.get(name)) for name in ("seconds", "validating", "predictions")]
        last = [as_number(after.get(name)) for name in ("seconds", "validating", "predictions")]
        step = as_number(after.get("step"))
        if step is None or None in first or None in last:
            continue
        seconds, validating, predictions = (b - a for a, b in zip(first, last, strict=True))  # type: ignore[operator]
        if seconds - validating > 0 and predictions > 0:
            point = (int(step), predictions / (seconds - validating), as_number(after.get("memory")))
            (points if seconds - validating >= _MOMENT else brief).append(point)
    kept = spread(points or brief, POINTS)
    return {
        "steps": [step for step, _, _ in kept],
        "speed": [speed for _, speed, _ in kept],
        "memory": [memory for _, _, memory in kept],
    }


def spread(items: Sequence[Any], most: int, also: Any = None) -> list[Any]:
    """At most so many of some items, evenly drawn, the first and the last among them, and one that must not miss."""
    if len(items) <= most:
        return list(items)
    chosen = {round(number * (len(items) - 1) / (most - 1)) for number in range(most)}
    return [item for number, item in enumerate(items) if number in chosen or (also is not None and item is also)]


def as_number(value: Any) -> float | None:
    """A finite number of a sensible size; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < _LARGEST else None  # false for what is not finite


def _keep_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    numbers = {str(name): as_number(value) for name, value in values.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _summarise(values: "array[float]", size: int) -> tuple[list[float | None], ...]:
    """The mean, the lowest and the highest of each stretch of so many values; None where none of them is a number."""
    padded = np.full(-(-len(values) // size) * size, np.nan)
    padded[: len(values)] = values
    stretches = padded.reshape(-1, size)
    real = ~np.isnan(stretches)
    counts = real.sum(1, keepdims=True)
    means = np.where(real, stretches / np.maximum(counts, 1), 0.0).sum(1)
    lowest, highest = (np.where(real, stretches, edge) for edge in (np.inf, -np.inf))
    columns = (means, lowest.min(1, initial=np.inf), highest.max(1, initial=-np.inf))
    return tuple(
        [value if count else None for value, count in zip(column.tolist(), counts[:, 0], strict=True)]
        for column in columns
    )


def _shorten(text: Any) -> str:
    text = text if isinstance(text, str) else str(text)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
