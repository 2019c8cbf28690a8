"""Tokenised text is told from text as people write it."""

import gzip
import random

import pytest

from seqloom.errors import DataError
from seqloom.metrics.tokenisation import find_tokenised, refuse_mismatch
from shared_data import corpus

WRITTEN = ["Hello, world.", "It isn't so.", "He said: no!", "A dog, a cat."]
TOKENISED = ["Hello , world .", "It is n't so .", "He said : no !", "A dog , a cat ."]
OTHERS = {
    "moses": ["Hello, it &apos;s me", "a well @-@ known man", "no", "yes"],
    "subwords": ["he@@ llo world", "a ca@@ t", "no", "do@@ gs"],
    "pieces": ["▁Hello ▁world", "▁It ▁is", "▁no", "▁a ▁dog"],
    "words": TOKENISED,
}


@pytest.mark.parametrize("kind", OTHERS)
def test_one_tokenised_side_is_refused_with_the_line_that_shows_it(kind: str) -> None:
    tokenised = OTHERS[kind]
    with pytest.raises(
        DataError, match=r"the outputs are tokenised, the references are not.*output 1 is.*set `tokenized`"
    ):
        refuse_mismatch(tokenised, WRITTEN)
    with pytest.raises(DataError, match=r"the references are tokenised, the outputs are not.*reference 1 is"):
        refuse_mismatch(WRITTEN, tokenised)
    refuse_mismatch(tokenised, tokenised)
    assert find_tokenised(tokenised) == 1
    assert find_tokenised(WRITTEN) is None


def test_marks_that_nobody_writes_need_no_opposite() -> None:
    plain = ["hello world", "it is", "no", "a dog"]
    with pytest.raises(DataError, match="outputs are tokenised"):
        refuse_mismatch(OTHERS["pieces"], plain)
    refuse_mismatch(TOKENISED, plain)  # no punctuation: nothing says that it is not tokenised


@pytest.mark.parametrize(
    "outputs",
    [
        ["", "", "", ""],
        [". . . . .", "the the the", ", , ,", ". ."],  # a model that has not learned to write
        ["Est-ce vrai ?", "Oui !", "Il dit : non.", "Une liste ; deux."],  # French writes these spaces
        ["costs .5 or 1,000.5", "etc. and so on.", "e.g. a, b.", "wait ... what."],
        ["Hello , world", *["Fine, thanks."] * 20],  # a slip of the pen
    ],
    ids=["blank", "garbage", "french", "numbers", "slip"],
)
def test_what_people_and_bad_models_write_is_not_refused(outputs: list[str]) -> None:
    refuse_mismatch(outputs, (WRITTEN * 6)[: len(outputs)])


@pytest.mark.parametrize("language", ["de", "en"])
def test_real_captions_are_told_apart(language: str) -> None:
    """Multi30k comes in both forms."""
    sides = []
    for form in (f"val.{language}", f"val.lc.norm.tok.{language}"):
        with gzip.open(corpus(f"multi30k/{form}.gz"), "rt", encoding="utf-8") as file:
            sides.append(file.read().split("\n")[:-1])
    written, tokenised = sides
    rng = random.Random(1)
    for _ in range(50):  # samples of 20 lines are enough to tell
        chosen = rng.sample(range(len(written)), 20)
        one, other = ([side[number] for number in chosen] for side in (written, tokenised))
        with pytest.raises(DataError, match="references are tokenised"):
            refuse_mismatch(one, other)
        with pytest.raises(DataError, match="outputs are tokenised"):
            refuse_mismatch(other, one)
        refuse_mismatch(one, one)
        refuse_mismatch(other, other)
