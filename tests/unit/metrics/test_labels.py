"""Accuracy and F1 of labels, by their definitions."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.metrics.classification import count_confusions, measure_accuracy, measure_macro_f1, score_labels

LABELS = ("cat", "dog", "eel", "fox")
answers = st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), min_size=1, max_size=30)


def split(rows: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [one for one, _ in rows], [other for _, other in rows]


def define_f1(rows: list[tuple[str, str]], label: str) -> Fraction:
    """The harmonic mean of precision and recall."""
    right = sum(wanted == given == label for wanted, given in rows)
    if not right:
        return Fraction(0)
    precision = Fraction(right, sum(given == label for _, given in rows))
    recall = Fraction(right, sum(wanted == label for wanted, _ in rows))
    return 2 * precision * recall / (precision + recall)


@given(answers)
def test_macro_f1_is_the_mean_over_labels_that_occur(rows: list[tuple[str, str]]) -> None:
    wanted, given = split(rows)
    seen = sorted({*wanted, *given})
    expected = sum(define_f1(rows, label) for label in seen) / len(seen)
    assert measure_macro_f1(wanted, given).value == pytest.approx(float(expected))
    table = {row.label: row for row in score_labels(wanted, given)}
    assert list(table) == seen
    for label, row in table.items():
        assert row.f1 == pytest.approx(float(define_f1(rows, label)))
        assert (row.wanted, row.given) == (wanted.count(label), given.count(label))
        assert 0 <= min(row.precision, row.recall) <= row.f1 <= max(row.precision, row.recall) <= 1


@given(answers, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_right_answers_are_right(rows: list[tuple[str, str]], rng: random.Random) -> None:
    shuffled = split(rng.sample(rows, len(rows)))
    wanted, given = split(rows)
    for measure in (measure_accuracy, measure_macro_f1):
        assert measure(wanted, given).value == pytest.approx(measure(*shuffled).value)
        assert measure(wanted, wanted).value == 1
    assert measure_accuracy(wanted, given).value == pytest.approx(sum(w == g for w, g in rows) / len(rows))


@given(answers)
def test_confusions_count_every_answer(rows: list[tuple[str, str]]) -> None:
    table = count_confusions(*split(rows))
    assert {(w, g): n for w, row in table.items() for g, n in row.items()} == {row: rows.count(row) for row in rows}
    for row in table.values():
        assert list(row.values()) == sorted(row.values(), reverse=True)


def test_a_rare_label_weighs_as_much_as_a_frequent_one() -> None:
    wanted = ["cat"] * 98 + ["dog"] * 2
    lazy = ["cat"] * 100
    assert measure_accuracy(wanted, lazy).value == 0.98
    assert measure_macro_f1(wanted, lazy).value == pytest.approx((2 * 98 / 198) / 2)
