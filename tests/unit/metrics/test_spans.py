"""Spans come out of every scheme of tags that they can be written in, and are scored as CoNLL does."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.metrics.spans import Span, find_spans, holds_spans, measure_span_f1, score_spans


def write_iob1(spans: list[Span], length: int) -> list[str]:
    tags = ["O"] * length
    ended = {(kind, stop) for kind, _, stop in spans}
    for kind, start, stop in spans:
        tags[start:stop] = [f"I-{kind}"] * (stop - start)
        if (kind, start) in ended:
            tags[start] = f"B-{kind}"
    return tags


def write_parts(first: str, inner: str, last: str, single: str) -> Callable[[list[Span], int], list[str]]:
    def write(spans: list[Span], length: int) -> list[str]:
        tags = ["O"] * length
        for kind, start, stop in spans:
            parts = [first, *[inner] * (stop - start - 2), last] if stop - start > 1 else [single]
            tags[start:stop] = [f"{part}-{kind}" for part in parts]
        return tags

    return write


SCHEMES = {
    "IOB1": write_iob1,
    "BIO": write_parts("B", "I", "I", "B"),
    "BIOES": write_parts("B", "I", "E", "S"),
    "BILOU": write_parts("B", "I", "L", "U"),
    "BMES": write_parts("B", "M", "E", "S"),
}


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Spans that do not overlap, and the number of words."""
    spans, place = [], 0
    for gap, size, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from(["PER", "LOC", "B-SIDE"])), max_size=6)
    ):
        spans.append((kind, place + gap, place + gap + size))
        place += gap + size
    return spans, place + draw(st.integers(0, 2))


@pytest.mark.parametrize("scheme", SCHEMES)
@given(sentence=sentences())
def test_spans_are_read_back(scheme: str, sentence: tuple[list[Span], int]) -> None:
    spans, length = sentence
    tags = SCHEMES[scheme](spans, length)
    assert find_spans(tags) == set(spans)
    assert holds_spans(tags) == bool(spans)
    assert measure_span_f1([tags], [tags]).value == bool(spans)


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O I-A I-A O", {("A", 1, 3)}),  # no B- before it
        ("B-A I-B", {("A", 0, 1), ("B", 1, 2)}),  # another kind inside
        ("B-A B-A", {("A", 0, 1), ("A", 1, 2)}),
        ("B-A E-A I-A", {("A", 0, 2), ("A", 2, 3)}),  # goes on after its end
        ("E-A E-A", {("A", 0, 1), ("A", 1, 2)}),
        ("B I O B", {("", 0, 2), ("", 3, 4)}),  # no kinds, as in word segmentation
        ("", set()),
    ],
)
def test_sequences_that_break_the_rules_are_read_as_conlleval_reads_them(tags: str, spans: set[Span]) -> None:
    assert find_spans(tags.split()) == spans


def test_a_span_is_right_only_as_a_whole_and_of_its_kind() -> None:
    wanted = [["B-PER", "I-PER", "O", "B-LOC", "O"], ["B-ORG", "O", "B-PER"]]
    given = [["B-PER", "O", "O", "B-LOC", "O"], ["B-LOC", "O", "B-PER"]]
    # 4 wanted, 4 given, 2 right
    assert measure_span_f1(wanted, given).value == 0.5
    table = {row.label: (row.precision, row.recall, row.wanted, row.given) for row in score_spans(wanted, given)}
    assert table == {"LOC": (0.5, 1, 1, 2), "ORG": (0, 0, 1, 0), "PER": (0.5, 0.5, 2, 2)}


@given(st.lists(sentences(), min_size=1, max_size=5))
def test_the_scheme_does_not_matter(rows: list[tuple[list[Span], int]]) -> None:
    """What is written in one scheme is scored against another: only the spans count."""
    writers = list(SCHEMES.values())
    wanted = [writers[n % 5](spans, length) for n, (spans, length) in enumerate(rows)]
    given = [writers[(n + 1) % 5](spans[1:], length) for n, (spans, length) in enumerate(rows)]
    total, found = sum(len(spans) for spans, _ in rows), sum(len(spans[1:]) for spans, _ in rows)
    assert measure_span_f1(wanted, given).value == pytest.approx(2 * found / (total + found) if total else 0)


def test_parts_of_speech_are_no_spans() -> None:
    assert not holds_spans(["NOUN", "VERB", "O"])
    assert not holds_spans(["O", "O"])
    assert not holds_spans(["B-PER", "X-PER"])
