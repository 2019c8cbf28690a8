"""Tags are the best sequence that their scheme allows, whatever the scores are."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.decode.viterbi import find_best_tags
from seqloom.metrics.spans import find_spans, find_transitions, is_iob1

BIO = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
SCHEMES = {
    "BIO": BIO,
    "BIOES": ("B-PER", "E-PER", "I-PER", "O", "S-LOC", "S-PER"),
    "BILOU": ("B-X", "I-X", "L-X", "O", "U-X"),
    "BMES": ("B", "E", "M", "S"),
    "IO": ("I-LOC", "I-PER", "O"),
}
scores = st.tuples(st.integers(1, 5), st.integers(0, 10**6))


def draw(size: tuple[int, int], count: int) -> np.ndarray:
    return np.random.default_rng(size[1]).normal(size=(size[0], count)).astype(np.float32)


def is_legal(tags: list[str], scheme: str) -> bool:
    """Whether tags are what writing their own spans in the scheme gives."""
    first, inner, last, single = {
        "BIO": ("B", "I", "I", "B"),
        "IO": ("I", "I", "I", "I"),
        "BIOES": ("B", "I", "E", "S"),
        "BILOU": ("B", "I", "L", "U"),
        "BMES": ("B", "M", "E", "S"),
    }[scheme]
    written = ["O"] * len(tags)
    for kind, start, stop in find_spans(tags):
        parts = [first, *[inner] * (stop - start - 2), last] if stop - start > 1 else [single]
        written[start:stop] = [f"{part}-{kind}" if kind else part for part in parts]
    return written == tags


@pytest.mark.parametrize("scheme", SCHEMES)
@given(size=scores)
def test_every_answer_is_legal_and_the_best_of_all_legal_ones(scheme: str, size: tuple[int, int]) -> None:
    tags = SCHEMES[scheme]
    given_scores = draw(size, len(tags))
    found = find_best_tags(given_scores, find_transitions(tags))
    assert is_legal([tags[number] for number in found], scheme)
    legal = [path for path in product(range(len(tags)), repeat=size[0]) if is_legal([tags[n] for n in path], scheme)]
    best = max(sum(given_scores[t, n] for t, n in enumerate(path)) for path in legal)
    assert sum(given_scores[t, n] for t, n in enumerate(found)) == pytest.approx(best, abs=1e-5)


@given(size=scores)
def test_other_tags_are_chosen_one_by_one(size: tuple[int, int]) -> None:
    given_scores = draw(size, 3)
    assert find_transitions(("DET", "NOUN", "O")) is None
    assert find_best_tags(given_scores, None) == given_scores.argmax(1).tolist()


@given(size=scores)
def test_in_iob1_a_span_may_begin_with_inside(size: tuple[int, int]) -> None:
    found = [BIO[n] for n in find_best_tags(draw(size, 5), find_transitions(BIO, iob1=True))]
    for before, after in pairwise(["O", *found]):
        assert not after.startswith("B") or before[1:] == after[1:]
    only = np.array([[0, 0, 0, 9, 0]])
    assert find_best_tags(only, find_transitions(BIO, iob1=True)) == [3]
    assert find_best_tags(only, find_transitions(BIO)) != [3]


def test_iob1_is_known_by_its_sentences() -> None:
    assert is_iob1([("O", "I-PER", "I-PER"), ("I-LOC", "B-LOC", "O")])
    assert not is_iob1([("O", "B-PER", "I-PER"), ("I-LOC", "O")])
    assert not is_iob1([("O", "O")])


def test_where_no_sequence_is_legal_each_word_gets_its_best_tag() -> None:
    rules = find_transitions(("B", "E"))
    assert find_best_tags(np.array([[1.0, 2.0]]), rules) == [1]
    assert find_best_tags(np.array([[1.0, 2.0], [2.0, 1.0]]), rules) == [0, 1]
    assert find_best_tags(np.empty((0, 2)), rules) == []
