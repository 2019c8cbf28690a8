"""Whether two quantities go together: Pearson's correlation, and Spearman's, which is Pearson's of the ranks.

r = (E[xy] − E[x] E[y]) / √(Var[x] Var[y])        0 where one of the two does not vary
"""

import math
from collections.abc import Sequence

import numpy as np

from weft.metrics.measure import Measure, Rows


def correlate_sums(count: float, x: float, y: float, xx: float, yy: float, xy: float) -> float:
    """Pearson's correlation from the sums of x, y and their products."""
    x, y, xx, yy, xy = (total / count for total in (x, y, xx, yy, xy))
    spread = math.sqrt(max(xx - x * x, 0.0) * max(yy - y * y, 0.0))
    return min(1.0, max(-1.0, (xy - x * y) / spread)) if spread else 0.0


def rank(values: Rows) -> Rows:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    return ((2 * last - size + 1) / 2)[group]


def measure_pearson(wanted: Sequence[float] | Rows, found: Sequence[float] | Rows) -> Measure:
    """How far the answers are a linear function of what was wanted."""
    return Measure("pearson", _pair(wanted, found), _pearson)


def measure_spearman(wanted: Sequence[float] | Rows, found: Sequence[float] | Rows) -> Measure:
    """How far the answers have the order of what was wanted."""
    return Measure("spearman", _pair(wanted, found), _spearman)


def _pair(wanted: Sequence[float] | Rows, found: Sequence[float] | Rows) -> Rows:
    return np.stack([np.asarray(wanted, np.float64), np.asarray(found, np.float64)], 1)


def _pearson(rows: Rows) -> float:
    if (rows == rows[0]).all(0).any():  # the mean of equal numbers need not be that number to the last digit
        return 0.0
    centred = rows - rows.mean(0)  # small numbers: the variance is no difference of large ones
    x, y = (centred / np.abs(centred).max(0)).T
    return correlate_sums(len(rows), x.sum(), y.sum(), x @ x, y @ y, x @ y)


def _spearman(rows: Rows) -> float:
    return _pearson(np.stack([rank(rows[:, 0]), rank(rows[:, 1])], 1))
