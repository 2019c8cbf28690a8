"""Some texts as numbers: the histogram of their code points, and the length of each in characters and in words.

Everything here is a pass of numpy or of a C loop over a whole chunk; no Python runs once per line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CODE_POINTS = 0x110000
Counts = NDArray[np.int64]

_WIDE_SPACES = (0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
"""Code points above ASCII that separate words, as `str.split` has it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Texts and their measures."""

    texts: Sequence[str]
    joined: str
    """The texts with a line end after each."""
    histogram: Counts
    """How often each code point occurs, up to the highest one; the line ends between the texts are not counted."""
    lengths: Counts
    """Characters of each text."""
    words: Counts
    """Words of each text: runs of characters that are neither spaces nor control characters."""

    def has(self, code: int) -> bool:
        """Whether a code point occurs."""
        return code < len(self.histogram) and bool(self.histogram[code])


def measure(texts: Sequence[str]) -> Measured:
    """Measure some texts."""
    joined = "\n".join(texts) + "\n" if texts else ""
    histogram = count_characters(joined)
    histogram[0x0A:0x0B] -= len(texts)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return Measured(texts, joined, histogram, lengths, _count_words(texts, joined, histogram))


def count_characters(text: str) -> Counts:
    """How often each code point occurs in a text."""
    if text.isascii():
        return np.bincount(np.frombuffer(text.encode("ascii"), np.uint8))
    return np.bincount(np.frombuffer(text.encode("utf-32-le"), np.int32))


def _count_words(texts: Sequence[str], joined: str, histogram: Counts) -> Counts:
    if histogram[0x0A:0x0B].any():  # a line end inside a text would shift the count below
        joined = "".join(text.replace("\n", " ") + "\n" for text in texts)
    for code in _WIDE_SPACES:
        if code < len(histogram) and histogram[code]:
            joined = joined.replace(chr(code), " ")
    encoded = np.frombuffer(joined.encode(), np.uint8)
    space = encoded <= 0x20
    starts = np.flatnonzero(space[:-1] & ~space[1:]) + 1
    if len(space) and not space[0]:
        starts = np.concatenate([[0], starts])
    ends = np.flatnonzero(encoded == 0x0A)
    return np.diff(np.searchsorted(starts, ends), prepend=0)
