"""Intervals hold what they should as often as they should; a test does not cry wolf, and hears one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.metrics.classification import measure_accuracy, measure_macro_f1
from seqloom.metrics.correlation import measure_pearson, measure_spearman
from seqloom.metrics.likelihood import measure_perplexity
from seqloom.metrics.measure import Measure, measure_share
from seqloom.metrics.resampling import compare, estimate
from seqloom.metrics.spans import measure_span_f1
from seqloom.metrics.translation import measure_exact_match, measure_translation

REFERENCES = [f"the {animal} sees a {other} today" for animal in ("cat", "dog", "eel", "fox") for other in "abcdefgh"]
GOOD = [text.replace("sees", "hears") if number % 3 == 0 else text for number, text in enumerate(REFERENCES)]
GARBAGE = ["nothing of the kind here"] * len(REFERENCES)


def measure_all(outputs: list[str], numbers: list[float]) -> list[Measure]:
    """Every metric, of outputs that are as good as each other."""
    tags = [["B-X" if word in ("sees", "today") else "O" for word in text.split()] for text in outputs]
    wanted = [["B-X" if word in ("sees", "today") else "O" for word in text.split()] for text in REFERENCES]
    quantities = [float(number) for number in range(len(REFERENCES))]
    return [
        *(measure_translation(name, [(text,) for text in REFERENCES], outputs) for name in ("bleu", "chrf", "ter")),  # type: ignore[arg-type]
        measure_exact_match([(text,) for text in REFERENCES], outputs),
        measure_accuracy(REFERENCES, outputs),
        measure_macro_f1([text.split()[2] for text in REFERENCES], [text.split()[2] for text in outputs]),
        measure_span_f1(wanted, tags),
        measure_pearson(quantities, numbers),
        measure_spearman(quantities, numbers),
        measure_perplexity([(5, 0)] * len(numbers), [-number for number in numbers]),
    ]


RNG = np.random.default_rng(5)
ALL = measure_all(GOOD, [number + noise for number, noise in enumerate(RNG.normal(0, 3, len(REFERENCES)))])
POOR = measure_all(GARBAGE, RNG.normal(60, 3, len(REFERENCES)).tolist())
IDS = [measure.name for measure in ALL]


@pytest.mark.parametrize("measure", ALL, ids=IDS)
def test_the_interval_holds_the_value_and_can_be_repeated(measure: Measure) -> None:
    found = estimate(measure, samples=200)
    assert found.low <= found.value <= found.high
    assert found.low < found.high
    assert found.value == measure.value
    assert estimate(measure, samples=200) == found


def test_another_seed_draws_other_sentences() -> None:
    perplexity = ALL[-1]
    assert estimate(perplexity, seed=1).value == estimate(perplexity, seed=2).value
    assert estimate(perplexity, seed=1).low != estimate(perplexity, seed=2).low


@pytest.mark.parametrize("measure", ALL, ids=IDS)
def test_no_system_differs_from_itself(measure: Measure) -> None:
    found = compare(measure, measure, samples=100)
    assert (found.difference, found.low, found.high, found.p) == (0, 0, 0, 1)


@pytest.mark.parametrize(("measure", "other"), list(zip(ALL, POOR, strict=True)), ids=IDS)
def test_a_good_system_differs_from_garbage(measure: Measure, other: Measure) -> None:
    found, mirrored = compare(measure, other, samples=200), compare(other, measure, samples=200)
    assert found.p < 0.05
    assert found.low > 0 or found.high < 0
    assert mirrored.difference == -found.difference
    assert mirrored.p == found.p


@given(st.lists(st.booleans(), min_size=1, max_size=40))
@settings(max_examples=20)
def test_a_share_lies_in_its_interval(right: list[bool]) -> None:
    found = estimate(measure_share("share", np.array(right), np.ones(len(right))), samples=200)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_the_interval_of_a_mean_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(0).normal(10, 2, 200)
    found = estimate(measure_share("mean", values, np.ones(200)), samples=4000)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=4000, method="percentile", random_state=np.random.default_rng(1)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(theirs), abs=0.03)


def test_the_scale_of_answers_is_no_difference() -> None:
    """Correlations do not mind it, so neither may a test that swaps answers."""
    rng = np.random.default_rng(4)
    wanted = rng.normal(size=100)
    good, poor = wanted + rng.normal(0, 0.5, 100), wanted + rng.normal(0, 2, 100)
    for measure in (measure_pearson, measure_spearman):
        found = compare(measure(wanted, good), measure(wanted, poor), samples=200)
        scaled = compare(measure(wanted, good), measure(wanted, 1000 * poor + 77), samples=200)
        assert scaled.p == found.p < 0.05
        assert compare(measure(wanted, good), measure(wanted, 3 * good - 5), samples=200).p == 1


def test_p_is_that_of_a_permutation_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(2)
    one = rng.normal(0.3, 1, 30)
    other = one + rng.normal(-0.2, 0.6, 30)
    exact = stats.permutation_test(
        (one, other), lambda x, y: x.mean() - y.mean(), permutation_type="samples", n_resamples=20000, rng=rng
    ).pvalue
    ones = np.ones(30)
    found = compare(measure_share("mean", one, ones), measure_share("mean", other, ones), samples=4000)
    assert found.p == pytest.approx(exact, abs=0.03)


def test_intervals_hold_the_truth_and_equals_seem_equal_19_times_in_20() -> None:
    rng = np.random.default_rng(7)
    held = wolves = 0
    for trial in range(100):
        one, other = rng.random((2, 60)) < 0.7
        measures = [measure_share("accuracy", right, np.ones(60)) for right in (one, other)]
        found = estimate(measures[0], samples=200, seed=trial)
        held += found.low <= 0.7 <= found.high
        wolves += compare(*measures, samples=200, seed=trial).p < 0.05
    assert 0.90 <= held / 100 <= 1
    assert wolves / 100 <= 0.1


def test_the_interval_of_bleu_is_about_that_of_sacrebleu() -> None:
    from sacrebleu.metrics.bleu import BLEU

    theirs = BLEU().corpus_score(GOOD, [REFERENCES], n_bootstrap=1000)
    found = estimate(measure_translation("bleu", [(text,) for text in REFERENCES], GOOD))
    assert (found.high - found.low) / 2 == pytest.approx(theirs._ci, rel=0.15)


def test_nothing_has_no_score() -> None:
    with pytest.raises(DataError, match="bleu: there is nothing to score"):
        estimate(measure_translation("bleu", [], []))


def test_a_label_that_only_one_system_gives_does_not_change_the_others() -> None:
    wanted = ["b", "c"] * 10
    one, two = list(wanted), list(wanted)
    one[0], two[1] = "a", "a"  # sorted before the others, so that it would shift their numbers
    found = compare(measure_macro_f1(wanted, one), measure_macro_f1(wanted, two))
    assert found.difference == pytest.approx(0.0)
    assert found.p == pytest.approx(1.0)
