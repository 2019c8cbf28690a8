"""A learning rate to start from: raise it exponentially, a step at a time, and see where the loss falls fastest.

Smith 2017, "Cyclical Learning Rates for Training Neural Networks", §3.3. The curve is smoothed by a running mean; the
search ends where the loss is far above its best, because the rate has become too high.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqloom.tasks import Task
from seqloom.training.distributed import ProcessGroup
from seqloom.training.job import build
from seqloom.training.prepare import Prepared
from seqloom.training.step import Learner, take_step

_STEPS = 100
_LOWEST, _HIGHEST = 1e-4, 1e2  # as shares of the configured rate
_MEMORY = 0.9
_TOO_HIGH = 2.0  # times the best loss


@dataclass(frozen=True)
class RateCurve:
    """The loss at each rate tried."""

    rates: list[float]
    losses: list[float]
    """Smoothed."""

    @property
    def best(self) -> float:
        """Where the loss fell fastest, seen over the logarithm of the rate."""
        slopes = np.gradient(np.asarray(self.losses), np.log(self.rates))
        return self.rates[int(slopes[5:].argmin()) + 5]  # the first few say nothing: the mean has just begun


def find_rate(task: Task, prepared: Prepared, base: Path) -> RateCurve:
    """Train for a hundred steps at rising rates, with weights that are then thrown away."""
    model = build(task, prepared, base)
    learner = Learner(model.train(), task, ProcessGroup())
    accumulate, rates = task.train.accumulate, []
    losses: list[float] = []
    mean = 0.0
    for step in range(_STEPS):
        share = _LOWEST * (_HIGHEST / _LOWEST) ** (step / (_STEPS - 1))
        learner.optimizer.set_rate(share)
        parts = [prepared.train.build(step, part, accumulate) for part in range(accumulate)]
        outcome = take_step(learner, parts, step)
        if not outcome.finite:
            break
        mean = _MEMORY * mean + (1.0 - _MEMORY) * outcome.loss
        smooth = mean / (1.0 - _MEMORY ** (step + 1))
        if losses and smooth > _TOO_HIGH * min(losses):
            break
        rates.append(share * task.train.optimizer.learning_rate)
        losses.append(smooth)
    return RateCurve(rates, losses)


def draw_curve(curve: RateCurve, width: int = 60, height: int = 10) -> str:
    """The curve in characters, with a mark at the rate that was found."""
    lowest, highest = min(curve.losses), max(curve.losses)
    rows = [[" "] * width for _ in range(height)]
    for rate, loss in zip(curve.rates, curve.losses, strict=True):
        across = math.log(rate / curve.rates[0]) / math.log(curve.rates[-1] / curve.rates[0])
        up = (loss - lowest) / max(highest - lowest, 1e-12)
        rows[round((1.0 - up) * (height - 1))][round(across * (width - 1))] = "o" if rate == curve.best else "·"
    first, last = f"{curve.rates[0]:.1e}", f"{curve.rates[-1]:.1e}"
    body = [
        f"{(highest, lowest)[index > 0]:8.3f} │" if index in (0, height - 1) else "         │"
        for index in range(height)
    ]
    lines = [edge + "".join(row) for edge, row in zip(body, rows, strict=True)]
    return "\n".join([*lines, "         └" + "─" * width, " " * 10 + first + last.rjust(width - len(first))])
