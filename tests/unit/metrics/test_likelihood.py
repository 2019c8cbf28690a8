"""Perplexity and bits per byte of uniform models are known."""

import math

import pytest

from seqloom.metrics.likelihood import exponentiate, measure_bits_per_byte, measure_perplexity


def test_a_uniform_model_is_as_perplexed_as_it_has_choices() -> None:
    lengths = [3, 0, 10, 1]
    totals = [-length * math.log(27) for length in lengths]
    assert measure_perplexity([(length, 0) for length in lengths], totals).value == pytest.approx(27)
    assert measure_bits_per_byte(
        [(0, size) for size in lengths], [-size * math.log(256) for size in lengths]
    ).value == pytest.approx(8)


def test_long_texts_weigh_by_their_tokens() -> None:
    found = measure_perplexity([(1, 0), (9, 0)], [-math.log(2), -9 * math.log(4)])
    assert found.value == pytest.approx(2 ** (19 / 10))


def test_a_hopeless_model_has_a_number_all_the_same() -> None:
    assert math.isfinite(exponentiate(1e6))
