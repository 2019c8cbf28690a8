"""Words that belong together -> tokens that belong together."""

import warnings
from itertools import pairwise

import pytest

from seqloom.data.columns import AlignmentColumn
from seqloom.data.examples import Chunk
from seqloom.data.formats import read_alignment
from seqloom.tasks.configuration import parse
from seqloom.text import Tokenizer
from small_corpora import sentences


def make_tokenizer(kind: str) -> Tokenizer:
    config = parse(f'task = "language-model"\ntokenizer = "{kind}"\ndata.train.files = "t"')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so little text gives fewer tokens than asked for
        return Tokenizer.train(sentences(50, seed=1), config.tokenizer)  # type: ignore[union-attr]


def encode(tokenizer: Tokenizer, **columns: list[str]) -> list[list[int]]:
    values, offsets = AlignmentColumn(tokenizer).encode(
        "alignment", Chunk("t", [1] * len(columns["source"]), {**columns})
    )["alignment"]
    return [values[start:stop].tolist() for start, stop in pairwise(offsets)]


def test_every_token_of_a_word_is_aligned() -> None:
    rows = encode(
        make_tokenizer("characters"), source=["ab c", "a"], target=["x yz", "b"], alignment=["1-0 0-1 0-1", ""]
    )
    assert rows == [[0, 2, 0, 3, 1, 2, 1, 3, 3, 0], []]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "words", "characters", "bytes"])
def test_words_are_found_again_in_their_tokens(kind: str) -> None:
    tokenizer, text = make_tokenizer(kind), "the  horse sees mice ."
    (row,) = encode(tokenizer, source=[text], target=[text], alignment=["1-1"])
    offsets = tokenizer.encode(text).offsets
    spelled = {text[slice(*offsets[token])].strip() for token in row}
    assert "".join(sorted(spelled, key="horse".find)) == "horse" or spelled <= set("horse")
    assert row[::2] == sorted(row[::2])


def test_a_corpus_without_alignments_has_none() -> None:
    assert encode(make_tokenizer("words"), source=["a", "b"], target=["c", "d"]) == [[], []]


def test_what_aligners_write_is_read() -> None:
    assert read_alignment(" 0-0 12-3\t1-1 ") == [(0, 0), (12, 3), (1, 1)]
    for wrong in ("0", "0-", "-1", "0--1", "a-1", "0-1-2", "1.5-2"):
        with pytest.raises(ValueError, match="not a pair of words"):
            read_alignment(wrong)
