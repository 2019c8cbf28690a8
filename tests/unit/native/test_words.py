"""The table of words: texts are cut between classes, and each part is asked for once."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from seqloom.native.words import NewPart, WordTable, describe, find_library

pytestmark = pytest.mark.skipif(find_library() is None, reason=describe())

LETTER, SPACE = 1, 4
ALPHABET = "abcäßжя語😀 ."


def make_table(tell_first: bool = False) -> WordTable:
    classes, pairs = np.zeros(1 << 16, np.uint8), np.zeros(5, np.uint8)
    classes[[ord(letter) for letter in "abcäßжя語"]], classes[ord(" ")] = LETTER, SPACE
    pairs[LETTER] = 1 << SPACE
    return WordTable(classes, pairs, tell_first=tell_first)


def cut(text: str) -> list[str]:
    """The same cuts, written down plainly."""
    parts = [""] if text else []
    for before, letter in zip(" " + text, text, strict=False):
        if parts[-1] and letter == " " and before in "abcäßжя語":
            parts.append("")
        parts[-1] += letter
    return parts


def test_parts_are_cut_asked_for_once_and_put_together() -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list(ALPHABET), rng.integers(0, 60))) for _ in range(3000)] + ["", "a", "a" * 9000]
    known: dict[str, list[int]] = {}

    def answer(parts: Sequence[NewPart]) -> list[list[int]]:
        for text, begins, shape in parts:
            assert text not in known
            assert not begins
            assert bool(shape & 1 << SPACE) == (" " in text[text.startswith(" ") :])
            known[text] = [len(known)] * (len(known) % 4)
        return [known[text] for text, _, _ in parts]

    table = make_table()
    for start in (0, 1500, 0):
        some = texts[start : start + 1503]
        for narrow in (True, False):
            ids, offsets = table.encode(some, answer, narrow=narrow)
            assert ids.dtype == (np.uint16 if narrow else np.uint32)
            for text, (first, last) in zip(some, pairwise(offsets), strict=True):
                wanted = [id for part in cut(text) for id in known[part]]
                assert (
                    ids[first:last].tolist() == (np.array(wanted, np.int64) % (1 << 16 if narrow else 1 << 32)).tolist()
                )
    assert len(table) == len(known)
    assert table.nbytes > sum(len(text.encode()) for text in known)


def test_the_first_part_of_a_text_is_one_of_its_own() -> None:
    asked: list[tuple[str, bool]] = []

    def answer(parts: Sequence[NewPart]) -> list[list[int]]:
        asked.extend((part.text, part.begins) for part in parts)
        return [[int(part.begins)] for part in parts]

    ids, offsets = make_table(tell_first=True).encode([" a a", "a", ""], answer, narrow=True)
    assert (ids.tolist(), offsets.tolist()) == ([1, 0, 1], [0, 2, 3, 3])
    assert asked == [(" a", True), (" a", False), ("a", True)]


def test_an_error_of_the_answer_comes_through() -> None:
    def refuse(parts: Sequence[NewPart]) -> list[list[int]]:
        raise ValueError(f"{len(parts)} parts")

    with pytest.raises(ValueError, match="2 parts"):
        make_table().encode(["a b", "a"], refuse, narrow=True)
