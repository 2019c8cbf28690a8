"""How sure a number is, found out by drawing sentences again.

Interval     Of N sentences, N are drawn with replacement, many times; the middle 95% of the metric's values are its
             interval (Efron and Tibshirani 1993, ch. 13; for BLEU: Koehn 2004). For the difference of two systems, the
             same sentences are drawn for both.
p            If two systems are equally good, it does not matter which of them answered what. So their answers to each
             sentence are swapped or not, by the toss of a coin, many times; p is the share of tosses with a difference
             at least as large as the one found (approximate randomisation: Noreen 1989; Riezler and Maxwell 2005, who
             find that it cries wolf less often than a test by bootstrap).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqloom.metrics.measure import Measure

SAMPLES = 1000
SEED = 1
LEVEL = 0.95
EQUAL = 1e-12
"""Differences that differ by less are the same."""


@dataclass(frozen=True)
class Estimate:
    """The value of a metric and its interval."""

    name: str
    value: float
    low: float
    high: float
    signature: str = ""


@dataclass(frozen=True)
class Comparison:
    """By how much a system differs from another in a metric."""

    name: str
    difference: float
    low: float
    high: float
    p: float
    """How often chance alone makes a difference as large."""


def estimate(measure: Measure, *, samples: int = SAMPLES, seed: int = SEED) -> Estimate:
    """A metric with its interval."""
    value = measure.value
    low, high = find_middle(_draw(measure, samples, seed))
    return Estimate(measure.name, value, low, high, measure.signature)


def compare(measure: Measure, other: Measure, *, samples: int = SAMPLES, seed: int = SEED) -> Comparison:
    """How much higher a metric is than the same metric of another system on the same sentences."""
    found = measure.value - other.value
    low, high = find_middle(_draw(measure, samples, seed) - _draw(other, samples, seed))
    generator = np.random.default_rng((seed, 1))
    one, two = measure.rows, other.rows
    as_large = 0
    for _ in range(samples):
        swapped = generator.integers(2, size=(len(one), 1), dtype=np.int8).astype(bool)
        difference = measure.compute(np.where(swapped, two, one)) - measure.compute(np.where(swapped, one, two))
        as_large += bool(abs(difference) >= abs(found) - EQUAL)
    return Comparison(measure.name, found, low, high, (as_large + 1) / (samples + 1))


def _draw(measure: Measure, samples: int, seed: int) -> NDArray[np.float64]:
    """The metric of samples of the sentences; the same seed draws the same sentences for every system."""
    generator, count = np.random.default_rng(seed), len(measure.rows)
    drawn = (measure.rows[generator.integers(count, size=count)] for _ in range(samples))
    return np.fromiter((measure.compute(rows) for rows in drawn), np.float64, samples)


def find_middle(values: NDArray[np.float64]) -> tuple[float, float]:
    """The ends of the middle 95% of values."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
