"""The fast counts against slow ones."""

import re
import unicodedata
from collections import Counter

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from seqloom.data.doctor.characters import ColumnStatistics, find_suspects, measure
from seqloom.data.doctor.split import find_common, find_conflicts, find_duplicates, find_first

characters = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from(" \t\n\r\x00\x0b\x1c\x85\xa0\u2028\u3000\u0301é字😀.&;\xc3\xa9\u200b\ufeff\u1161\u1100각"),
)
texts = st.lists(st.text(characters, max_size=12), max_size=8)
SPACES = re.compile("[\x00-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


@given(texts=texts)
@example(texts=["\n", "a\x85b"])
def test_lengths_words_and_characters(texts: list[str]) -> None:
    measured = measure(texts)
    assert measured.lengths.tolist() == [len(text) for text in texts]
    assert measured.words.tolist() == [len([w for w in SPACES.split(text) if w]) for text in texts]
    counts = Counter("".join(texts))
    assert {chr(c): int(measured.histogram[c]) for c in np.flatnonzero(measured.histogram)} == counts


@given(texts=texts)
def test_normal_form_and_characters_are_judged_text_by_text(texts: list[str]) -> None:
    found = {(kind, index) for kind, index, _ in find_suspects(measure(texts))}
    for index, text in enumerate(texts):
        assert (("not_nfc", index) in found) == (not unicodedata.is_normalized("NFC", text))
        assert (("nul", index) in found) == ("\x00" in text)
        assert (("lone_cr", index) in found) == ("\r" in text)
        assert (("invisible_character", index) in found) == bool(
            re.search("[\xad\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069]", text)
        )
        breaks = len(text.splitlines()) > 1 or bool(text.splitlines() and text.splitlines()[0] != text)
        others = {kind for kind, i in found if i == index} & {"line_separator", "lone_cr"}
        assert bool(others) == breaks, "what Python takes for a line end is reported"


@given(texts=texts)
def test_sizes_and_coverage(texts: list[str]) -> None:
    column = ColumnStatistics()
    column.add(measure(texts), None)
    stats = column.summary(column)
    assert stats.bytes == sum(len(text.encode()) for text in texts)
    assert stats.characters == sum(map(len, texts))
    assert sum(count for _, count in stats.lengths.histogram) == len(texts) or not texts
    assert stats.coverage is not None
    assert stats.coverage.words == stats.coverage.characters == 1.0
    stranger = ColumnStatistics()
    stranger.add(measure(["qqq zzz qqq"]), None)
    coverage = stranger.summary(column).coverage
    assert coverage is not None
    known = {word for text in texts for word in text.split()}
    assert coverage.words == (2 * ("qqq" in known) + ("zzz" in known)) / 3


hashes = st.lists(st.integers(0, 5), max_size=30)


@given(values=hashes, known=hashes)
def test_repeats_and_overlap(values: list[int], known: list[int]) -> None:
    array, other = np.array(values, np.int64), np.array(known, np.int64)
    assert find_duplicates(array).tolist() == [i for i, v in enumerate(values) if v in values[:i]]
    assert find_common(array, other).tolist() == [i for i, v in enumerate(values) if v in known]
    assert find_first(array, array).tolist() == [values.index(v) for v in values]


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=20))
def test_conflicts_are_with_the_first_of_the_same_input(rows: list[tuple[int, int]]) -> None:
    inputs = np.array([a for a, _ in rows], np.int64)
    records = np.array([10 * a + b for a, b in rows], np.int64)
    first: dict[int, int] = {}
    expected = [i for i, (a, b) in enumerate(rows) if first.setdefault(a, b) != b]
    assert find_conflicts(inputs, records).tolist() == expected
