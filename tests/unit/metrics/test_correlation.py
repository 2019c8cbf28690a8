"""Correlations are those of SciPy, with ties and at every scale."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seqloom.metrics.correlation import measure_pearson, measure_spearman, rank

values = st.one_of(st.integers(0, 5).map(float), st.floats(-1e6, 1e6))
quantities = st.lists(st.tuples(values, values), min_size=2, max_size=30)


@given(quantities)
def test_both_are_those_of_scipy(rows: list[tuple[float, float]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    x, y = np.array(rows).T
    assume(np.ptp(x) > 1e-3)
    assume(np.ptp(y) > 1e-3)
    assert measure_pearson(x, y).value == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)
    assert measure_spearman(x, y).value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=20))
def test_ranks_average_over_ties(values: list[int]) -> None:
    expected = [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]
    assert rank(np.array(values, dtype=float)).tolist() == expected


@given(quantities, st.floats(0.1, 10), st.floats(-100, 100))
def test_scale_and_origin_do_not_matter(rows: list[tuple[float, float]], scale: float, shift: float) -> None:
    x, y = np.array(rows).T
    assume(np.ptp(x) > 1e-3)
    assert measure_pearson(x, scale * x + shift).value == pytest.approx(1)
    assert measure_pearson(x, y).value == pytest.approx(measure_pearson(y, x).value)
    assert -1 <= measure_spearman(x, y).value <= 1


def test_what_does_not_vary_goes_together_with_nothing() -> None:
    assert measure_pearson([1, 2, 3], [0.1, 0.1, 0.1]).value == 0
    assert measure_spearman([5, 5], [1, 2]).value == 0


def test_sums_are_enough() -> None:
    x, y = np.random.default_rng(3).normal(size=(2, 50))
    assert measure_pearson(x, y).value == pytest.approx(np.corrcoef(x, y)[0, 1])
