"""Means over trainings, their intervals and differences."""

import numpy as np
import pytest

from seqloom.metrics.classification import measure_accuracy
from seqloom.metrics.measure import Measure
from seqloom.metrics.repetitions import adjust, compare_means, estimate_mean
from seqloom.metrics.resampling import compare, estimate
from seqloom.tasks import TASKS, Task


def answer(share: float, seed: int, count: int = 400) -> Measure:
    right = np.random.default_rng(seed).random(count) < share
    return measure_accuracy(["x"] * count, ["x" if one else "y" for one in right])


def test_one_training_is_judged_as_by_eval() -> None:
    measure, other = answer(0.8, 1), answer(0.7, 2)
    mean, alone = estimate_mean([measure]), estimate(measure)
    assert mean.value == alone.value
    assert (mean.low, mean.high) == pytest.approx((alone.low, alone.high), abs=0.01)
    found, wanted = compare_means([measure], [other]), compare(measure, other)
    assert found.difference == wanted.difference
    assert found.p == pytest.approx(wanted.p, abs=0.01)


def test_the_interval_widens_with_what_seeds_do() -> None:
    alike = [answer(0.8, seed) for seed in range(5)]
    apart = [answer(share, seed) for seed, share in enumerate((0.6, 0.7, 0.8, 0.9, 1.0))]
    narrow, wide = estimate_mean(alike), estimate_mean(apart)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert narrow.value == pytest.approx(np.mean([one.value for one in alike]))


def test_differences() -> None:
    good, bad = ([answer(share, seed + 10 * first) for seed in range(3)] for first, share in ((1, 0.85), (2, 0.7)))
    found = compare_means(good, bad)
    assert found.p < 0.01
    assert found.low > 0
    same = compare_means(good, good)
    assert (same.difference, same.p) == (0.0, 1.0)
    back = compare_means(bad, good)
    assert (back.difference, back.p) == (pytest.approx(-found.difference), found.p)


def test_holm() -> None:
    assert adjust([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert adjust([0.5, 0.9]) == [1.0, 1.0]
    assert adjust([]) == []


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if issubclass(task, Task)])
def test_every_metric_can_be_computed_of_kept_rows(name: str) -> None:
    """Rows are written down and read again: the metric without answers knows how to compute them."""
    task = TASKS[name].model_construct()
    for metric in task.metrics(("B-x", "O")) if name != "classification" else ():  # type: ignore[attr-defined]
        assert callable(metric.measure((), ()).compute)
