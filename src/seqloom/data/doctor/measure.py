"""Some texts as numbers: the histogram of their code points, and the length of each in characters and in words.

Everything here is a pass of numpy or of a C loop over a whole chunk; no Python runs once per line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    full_stops: int
    """Texts that end with one full stop."""
    spaced_full_stops: int
    """Texts that end with a space and a full stop."""

    def has(self, code: int) -> bool:
        """Whether a code point occurs."""
        return code < len(self.histogram) and bool(self.histogram[code])


def measure(texts: Sequence[str]) -> Measured:
    """Measure some texts."""
    joined = "\n".join(texts) + "\n" if texts else ""
    codes = _code_points(joined)
    histogram = np.bincount(codes)
    histogram[0x0A:0x0B] -= len(texts)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    ends = np.cumsum(lengths + 1) - 1

    blank = codes <= 0x20
    for space in _WIDE_SPACES:
        if space < len(histogram) and histogram[space]:
            blank |= codes == space
    starts = np.flatnonzero(blank[:-1] & ~blank[1:]) + 1
    if len(blank) and not blank[0]:
        starts = np.concatenate([[0], starts])
    words = np.diff(np.searchsorted(starts, ends), prepend=0)

    before = codes[ends[codes[ends - 1] == ord(".")] - 2]  # what stands before each final full stop
    full_stops = int(np.count_nonzero(before != ord(".")))
    return Measured(texts, joined, histogram, lengths, words, full_stops, int(np.count_nonzero(before == ord(" "))))


def add_counts(one: Counts, other: Counts) -> Counts:
    """The sum of two histograms of any length."""
    shorter, longer = sorted((one, other), key=len)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total


def _code_points(text: str) -> NDArray[np.integer[Any]]:
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    return np.frombuffer(text.encode("utf-32-le"), np.int32)
