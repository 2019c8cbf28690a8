"""Word-vector files: what is written comes back, and a broken file is refused with its place."""

import gzip
import struct
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.hub.word2vec import Format, read_word_vectors, write_word_vectors
from seqloom.models.word_vectors import WordVectors

FORMATS = get_args(Format)
characters = st.characters(exclude_categories=["Cs"], exclude_characters=" \n")
plain_words = st.text(characters, min_size=1, max_size=12)
spaced_words = st.lists(st.text("abcé.日", min_size=1, max_size=3), min_size=1, max_size=3).map(" ".join)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def vector_sets(draw: st.DrawFn, words: st.SearchStrategy[str]) -> WordVectors:
    names = draw(st.lists(words, min_size=1, max_size=8, unique=True))
    dim = draw(st.integers(3, 6))
    rows = draw(st.lists(st.lists(numbers, min_size=dim, max_size=dim), min_size=len(names), max_size=len(names)))
    return WordVectors(names, torch.tensor(rows))


def assert_same(found: WordVectors, expected: WordVectors) -> None:
    assert found.words == expected.words
    assert torch.equal(found.vectors, expected.vectors)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("format", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(vectors=vector_sets(plain_words))
def test_every_format_gives_back_the_same_words_and_bits(
    vectors: WordVectors, format: Format, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"vectors{suffix}"
    write_word_vectors(vectors, path, format)
    assert_same(read_word_vectors(path), vectors)


def test_numbers_whose_bytes_are_letters_are_numbers(tmp_path: Path) -> None:
    letters = torch.frombuffer(bytearray(b"abcdefghi F1[\n w"), dtype=torch.float32)
    vectors = WordVectors(["a"], letters.view(1, 4))
    write_word_vectors(vectors, tmp_path / "vectors.bin", "word2vec-binary")
    assert_same(read_word_vectors(tmp_path / "vectors.bin"), vectors)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(vectors=vector_sets(spaced_words))
def test_glove_words_may_have_spaces(vectors: WordVectors, tmp_path: Path) -> None:
    write_word_vectors(vectors, tmp_path / "glove.txt", "glove")
    assert_same(read_word_vectors(tmp_path / "glove.txt"), vectors)


def test_many_words_cross_every_buffer(tmp_path: Path) -> None:
    vectors = WordVectors([f"word{i}" for i in range(6000)], torch.randn(6000, 60))  # 1.5 MB in binary, 4 MB as text
    for format in FORMATS:
        write_word_vectors(vectors, tmp_path / "vectors", format)
        assert_same(read_word_vectors(tmp_path / "vectors"), vectors)


def test_binary_without_line_ends_and_text_with_trailing_spaces_are_read(tmp_path: Path) -> None:
    """Gensim leaves out the line end after a binary vector; word2vec's own program ends each text line in a space."""
    path = tmp_path / "vectors"
    path.write_bytes(b"2 3\n" + b"".join(w + b" " + struct.pack("<3f", 1, 2, 3) for w in (b"one", b"two")))
    assert read_word_vectors(path).words == ("one", "two")
    path.write_bytes(b"2 3\none 1 2 3 \r\ntwo -1 2e-3 3 \r\n\r\n")
    assert_same(read_word_vectors(path), WordVectors(["one", "two"], torch.tensor([[1, 2, 3], [-1, 2e-3, 3]])))


def test_glove_sizes_are_seen_although_words_look_like_numbers_or_have_spaces(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("2006 0.5 1.5\nat 5 0.5 2.5\n. . . 0 1\nthe 0.5 3.5\n3.14 1 2\n", encoding="utf-8")
    assert read_word_vectors(path).words == ("2006", "at 5", ". . .", "the", "3.14")


def packed(*words: tuple[bytes, tuple[float, ...]]) -> bytes:
    return b"".join(word + b" " + struct.pack(f"<{len(row)}f", *row) + b"\n" for word, row in words)


NAN, INF = float("nan"), float("inf")
BROKEN = {
    "a column too few": (b"2 3\nthe 1 2 3\nof 1 2\n", r":3: expected a word and 3 numbers .* found 3 columns"),
    "a column too many": (b"2 3\nthe 1 2 3\nof 0.5 1 2 3\n", r":3: expected a word and 3 numbers .* found 5 columns"),
    "no word": (b"1 3\n 1 2 3\n", r":2: expected a word and 3 numbers"),
    "two spaces": (b"2 3\nthe 1  2 3\nof 1 2 3\n", r":2: .*not a number"),
    "a word among the numbers": (
        b"the 1 2 3\nof 1 x 3\nto 1 2 3\n",
        r":2: one of the last 3 columns is not a number.*'x'",
    ),
    "a word twice": (b"the 1 2\nof 1 2\nthe 3 4\n", r':3: the word "the" is in line 1 already'),
    "fewer words than promised": (b"3 2\nthe 1 2\nof 1 2\n", r"promises 3 words, but the file ends after 2"),
    "more words than promised": (
        b"1 2\nthe 1 2\nof 1 2\n",
        r":3: the first line promises 1 words, but this is one more",
    ),
    "NaN": (b"the 1 2\nof nan 2\n", r":2: the vector holds NaN"),
    "infinity": (b"2 2\nthe 1 2\nof 2 inf\n", r":3: the vector holds NaN or an infinite"),
    "too large for float32": (b"the 1 2\nof 1e39 2\n", r":2: the vector holds NaN or an infinite"),
    "bad UTF-8": (b"the 1 2\n\xff 1 2\n", r":2: .*UTF-8"),
    "prose": (b"It was a dark night\nand nobody came.\n", r":1: not word vectors"),
    "nothing": (b"", r"empty"),
    "blank lines": (b"\n \n", r"only blank lines"),
    "text header too large": (b"1000000000 300\nthe 1 2\n", r":1: the header promises 1000000000 words of 300 numbers"),
    "header without words": (b"0 300\n", r":1: the header promises 0 words"),
    "header without numbers": (b"3 0\na\nb\nc\n", r":1: the header promises 3 words of 0 numbers"),
    "binary header too large": (
        b"99999999999999999999 100\n" + packed((b"the", (1, 2, 3))),
        r":1: the header promises 99999999999999999999 words of 100 numbers, which a file of 42 bytes cannot hold",
    ),
    "binary cut short": (b"2 4\n" + packed((b"the", (1, 2, 3, 4)), (b"of", (1, 2, 3, 4)))[:-5], r"inside word 2"),
    "binary with more": (b"1 2\n" + packed((b"the", (1, 2)), (b"of", (1, 2))), r"promises 1 words, but more follows"),
    "binary word twice": (b"2 2\n" + packed((b"the", (1, 2)), (b"the", (1, 2))), r'word 2, "the", is word 1 already'),
    "binary NaN": (b"2 2\n" + packed((b"the", (1, 2)), (b"of", (1, NAN))), r"word 2: the vector holds NaN"),
    "binary infinity": (b"2 2\n" + packed((b"the", (1, -INF)), (b"of", (1, 2))), r"word 1: the vector holds NaN"),
    "binary word not UTF-8": (b"1 2\n" + packed((b"\xe9t\xe9", (1, 2))), r"word 1, .* is not UTF-8"),
    "binary word without end": (b"2 2\n" + packed((b"the", (1, 2))) + b"\x01" * (3 << 20), r"word 2 has no end"),
    "gzip cut short": (gzip.compress(b"the 1 2\n" * 1000, mtime=0)[:-20], r"compressed|truncated|ends|damaged"),
    "gzip header too large": (
        gzip.compress(b"900000000 300\nthe 1 2\n", mtime=0),
        r":1: the header promises 900000000 words",
    ),
    "zip": (b"PK\x03\x04" + bytes(40), r"zip archive"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused_with_its_place(kind: str, tmp_path: Path) -> None:
    content, message = BROKEN[kind]
    path = tmp_path / "vectors"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_word_vectors(path)
    assert str(caught.value).startswith(str(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), start=st.sampled_from([b"", b"2 2\n", b"1 3\na ", b"the 1 2\n", b"\x1f\x8b"]))
def test_any_bytes_are_read_or_refused(content: bytes, start: bytes, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(start + content)
    refusal = ""
    try:
        assert read_word_vectors(path).vectors.isfinite().all()
    except DataError as error:
        refusal = str(error)
    assert refusal == "" or refusal.startswith(str(path))


def test_a_missing_file_and_a_folder_are_said(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            read_word_vectors(path)


@pytest.mark.parametrize(
    ("word", "format", "reason"),
    [
        ("New York", "word2vec", "space"),
        ("New York", "word2vec-binary", "space"),
        ("line\nend", "glove", "line end"),
        ("", "glove", "empty"),
        (" x", "glove", "space"),
        ("route 66", "glove", "number"),
    ],
)
def test_words_that_would_not_come_back_are_not_written(word: str, format: Format, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    with pytest.raises(DataError, match=reason):
        write_word_vectors(WordVectors(["the", word], torch.ones(2, 3)), path, format)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        write_word_vectors(WordVectors(["the"], torch.ones(1, 3)), tmp_path / "absent" / "vectors", "glove")
    assert list(tmp_path.iterdir()) == []
