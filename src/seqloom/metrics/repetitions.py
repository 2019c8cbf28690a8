"""How sure the mean of a metric is over several trainings of a system, with different seeds.

Interval     Trainings and sentences are drawn again with replacement, both at once: S of S trainings, N of N sentences,
             the same sentences for each training. The middle 95% of the means are the interval (the two-level
             bootstrap: Davison and Hinkley 1997, §3.8). Of one training, only the sentences are drawn. Few trainings
             vary less than many would, so an interval of three seeds is rather too narrow than too wide.
p            As in `resampling.py`, for the sentences: the answers of both systems to a sentence are swapped or not, in
             all trainings together. It says whether these trained models differ; the interval of the difference also
             says whether other seeds would.
Several p    Of many comparisons some look significant by chance. The smallest of k is multiplied by k, the next by
             k − 1, and so on, and none is smaller than the one before (Holm 1979).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seqloom.metrics.measure import Measure, Rows
from seqloom.metrics.resampling import EQUAL, SAMPLES, SEED, Comparison, Estimate, find_middle


def estimate_mean(measures: Sequence[Measure], *, samples: int = SAMPLES, seed: int = SEED) -> Estimate:
    """The mean of a metric over trainings, with its interval."""
    first = measures[0]
    low, high = find_middle(_draw(measures, samples, seed))
    return Estimate(first.name, _mean(measures, [one.rows for one in measures]), low, high, first.signature)


def compare_means(
    measures: Sequence[Measure], others: Sequence[Measure], *, samples: int = SAMPLES, seed: int = SEED
) -> Comparison:
    """How much higher the mean is than that of another system, trained with the same seeds, on the same sentences."""
    ours, theirs = ([measure.rows for measure in some] for some in (measures, others))
    found = _mean(measures, ours) - _mean(others, theirs)
    low, high = find_middle(_draw(measures, samples, seed) - _draw(others, samples, seed))
    generator = np.random.default_rng((seed, 1))
    as_large = 0
    for _ in range(samples):
        swapped = generator.integers(2, size=(len(ours[0]), 1), dtype=np.int8).astype(bool)
        one, two = (
            _mean(measures, [np.where(swapped == side, b, a) for a, b in zip(ours, theirs, strict=True)])
            for side in (True, False)
        )
        as_large += bool(abs(one - two) >= abs(found) - EQUAL)
    return Comparison(measures[0].name, found, low, high, (as_large + 1) / (samples + 1))


def adjust(chances: Sequence[float]) -> list[float]:
    """The p of several comparisons, each as large as it must be for all of them to be believed together."""
    adjusted, largest = [0.0] * len(chances), 0.0
    for rank, number in enumerate(sorted(range(len(chances)), key=lambda number: chances[number])):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[number]))
        adjusted[number] = largest
    return adjusted


def _mean(measures: Sequence[Measure], rows: Sequence[Rows]) -> float:
    return float(np.mean([measure.compute(some) for measure, some in zip(measures, rows, strict=True)]))


def _draw(measures: Sequence[Measure], samples: int, seed: int) -> NDArray[np.float64]:
    """The means of samples; the same seed draws the same trainings and sentences for every system."""
    generator = np.random.default_rng(seed)
    trainings, sentences = len(measures), len(measures[0].rows)
    means = np.empty(samples)
    for number in range(samples):
        chosen = generator.integers(sentences, size=sentences)
        counts = np.bincount(generator.integers(trainings, size=trainings), minlength=trainings)
        values = [count * measures[at].compute(measures[at].rows[chosen]) for at, count in enumerate(counts) if count]
        means[number] = sum(values) / trainings
    return means
