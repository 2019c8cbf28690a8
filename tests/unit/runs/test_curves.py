"""Curves are thinned to what a chart can show: the mean, the lowest and the highest value of each stretch."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.runs.curves import POINTS, Curves, find_speed, spread


@given(st.lists(st.floats(width=32) | st.none(), min_size=1, max_size=3 * POINTS))
def test_each_point_is_the_mean_of_its_steps(losses: list[float | None]) -> None:
    curves = Curves()
    curves.add({"step": step, "loss": loss, "norm": 1.0, "rate": 1.0} for step, loss in enumerate(losses, 1))
    found = curves.thin_steps()
    size = found["each"]
    assert size == math.ceil(len(losses) / POINTS)
    assert found["steps"][-1] == len(losses)
    assert len(found["steps"]) == len(found["loss"]) == len(found["low"]) == math.ceil(len(losses) / size)
    for number, (mean, low, high) in enumerate(zip(found["loss"], found["low"], found["high"], strict=True)):
        part = losses[number * size : (number + 1) * size]
        real = [value for value in part if value is not None and math.isfinite(value)]
        if not real:
            assert (mean, low, high) == (None, None, None)
            continue
        assert (low, high) == (min(real), max(real))
        np.testing.assert_allclose(mean, np.mean(real), rtol=1e-9, atol=1e-30)
    assert curves.infinite == sum(loss is None or not math.isfinite(loss) for loss in losses)


def test_the_largest_numbers_have_a_mean() -> None:
    curves = Curves()
    curves.add({"step": step, "loss": 9e299, "norm": 1.0} for step in range(10 * POINTS))
    assert curves.thin_steps()["loss"] == pytest.approx([9e299] * POINTS)


@pytest.mark.parametrize("count", [1, 5, 40, 41, 1000])
def test_some_of_many_have_the_ends_and_the_one_that_must_not_miss(count: int) -> None:
    items = [[number] for number in range(count)]
    kept = spread(items, 40, items[count // 3])
    assert kept[0] is items[0]
    assert kept[-1] is items[-1]
    assert items[count // 3] in kept
    assert min(count, 40) <= len(kept) <= 41
    assert kept == sorted(kept)


def test_the_speed_leaves_out_validations_and_the_time_between_processes() -> None:
    def line(step: int, seconds: float, validating: float, predictions: int) -> dict[str, object]:
        numbers = {"step": step, "seconds": seconds, "validating": validating, "predictions": predictions}
        return {**numbers, "memory": 100}

    lines = [
        {"start": "2026-01-01T00:00:00+00:00"},
        line(0, 0.0, 0.0, 0),
        line(10, 2.0, 0.0, 200),
        line(20, 6.0, 2.0, 400),
        {"start": "2026-01-02T00:00:00+00:00"},
        line(15, 4.0, 1.0, 300),  # it went back to its checkpoint
        line(25, 6.0, 1.0, 500),
        {**line(26, 6.1, 1.0, 900), "end": "finished"},  # too short to say anything
    ]
    assert find_speed(lines) == {"steps": [10, 20, 25], "speed": [100.0, 100.0, 100.0], "memory": [100.0] * 3}
    assert find_speed([{"step": 3, "seconds": 1.0, "waited": 0.0}]) == {"steps": [], "speed": [], "memory": []}
