"""Whether two quantities go together: Pearson's correlation, and Spearman's, which is Pearson's of the ranks.

r = (E[xy] − E[x] E[y]) / √(Var[x] Var[y])        0 where one of the two does not vary
"""

import math
from collections.abc import Sequence

import numpy as np

from seqloom.metrics.measure import Measure, Metric, Rows


def rank(values: Rows) -> Rows:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    return ((2 * last - size + 1) / 2)[group]


def measure_pearson(wanted: Sequence[float] | Rows, found: Sequence[float] | Rows) -> Measure:
    """How far the answers are a linear function of what was wanted."""
    return Measure("pearson", np.stack([_standardise(wanted), _standardise(found)], 1), _pearson)


def measure_spearman(wanted: Sequence[float] | Rows, found: Sequence[float] | Rows) -> Measure:
    """How far the answers have the order of what was wanted."""
    ranks = [_standardise(rank(np.asarray(values, np.float64))) for values in (wanted, found)]
    return Measure("spearman", np.stack(ranks, 1), _spearman)


def _standardise(values: Sequence[float] | Rows) -> Rows:
    """Mean 0 and variance 1, which no correlation minds.

    The answers of two systems then differ in how good they are, not in their scale, so that they may be swapped; and
    a variance is no difference of large numbers.
    """
    numbers = np.asarray(values, np.float64)
    if not len(numbers) or (numbers == numbers[0]).all():  # their mean need not be that number to the last digit
        return np.zeros_like(numbers)
    centred: Rows = (numbers - numbers.mean()) / np.ptp(numbers)
    return centred / float(centred.std())


def _pearson(rows: Rows) -> float:
    if (rows == rows[0]).all(0).any():
        return 0.0
    mean_x, mean_y = rows.mean(0)
    (xx, xy), (_, yy) = rows.T @ rows / len(rows) - np.outer((mean_x, mean_y), (mean_x, mean_y))
    spread = math.sqrt(max(xx, 0.0) * max(yy, 0.0))
    return min(1.0, max(-1.0, float(xy) / spread)) if spread else 0.0


def _spearman(rows: Rows) -> float:
    return _pearson(np.stack([_standardise(rank(column)) for column in rows.T], 1))


PEARSON = Metric("pearson", measure_pearson)
SPEARMAN = Metric("spearman", measure_spearman)
