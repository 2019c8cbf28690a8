"""Statistics of texts, and the search for characters that do not belong in them or should be written differently.

Texts are measured by numpy or a C loop over a whole chunk; no Python runs for each line. The histogram of code points
then shows which kinds of suspicious characters a chunk has, and it is searched only for these, so clean text costs no
more than the histogram.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqloom.data.doctor.report import Coverage, Lengths, TextStats

CODE_POINTS = 0x110000
VOCABULARY_LIMIT = 1 << 24
"""Characters of a column from which words are collected."""
LONGEST = 1 << 14
"""Longer texts, in words, are counted together."""

Counts = NDArray[np.int64]
Integers = NDArray[np.integer[Any]]

SUSPECTS: dict[str, str] = {
    "nul": "\x00",
    "lone_cr": "\r",
    "line_separator": "\x0b\x0c\x1c-\x1e\x85\u2028\u2029",
    "control_character": "\x01-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f",
    "invisible_character": "\xad\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069",
    "replacement_character": "\ufffd",
    "private_character": "\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff",
}
"""The characters of each kind, as they are written in a class of a regular expression."""

PATTERNS: dict[str, re.Pattern[str]] = {kind: re.compile(f"[{members}]") for kind, members in SUSPECTS.items()}
_ENTITY = re.compile(r"&(?:amp|apos|quot|lt|gt|nbsp|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});")
# The bytes of a UTF-8 character that starts with C2, C3 or E2, read as Windows-1252.
_MOJIBAKE = re.compile("[\xc2\xc3][\x80-\xbf€‚ƒ„…†‡‹ŠŒŽ]|\xe2€")
_NAMES = {"\x00": "NUL", "\r": "CARRIAGE RETURN", "\x0b": "VERTICAL TAB", "\x0c": "FORM FEED", "\x85": "NEXT LINE"}

_WIDE_SPACES = (0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
"""Code points above ASCII at which `str.split` separates words."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Texts and their measurements."""

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
    """The number of texts that end with one full stop."""
    spaced_full_stops: int
    """The number of texts that end with a space and a full stop."""

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


def _code_points(text: str) -> Integers:
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    return np.frombuffer(text.encode("utf-32-le"), np.int32)


Suspicion = tuple[str, int, str]
"""The kind of finding, the index of the text, and a description."""


def find_suspects(measured: Measured) -> Iterator[Suspicion]:
    """Find suspicious characters, at most one of each kind in each text."""
    texts, present = measured.texts, np.flatnonzero(measured.histogram)
    patterns = {kind: PATTERNS[kind] for index, kind in enumerate(SUSPECTS, 1) if (_table()[present] == index).any()}
    if measured.has(ord("&")):
        patterns["entity"] = _ENTITY
    if any(map(measured.has, (0xC2, 0xC3, 0xE2))):
        patterns["mojibake"] = _MOJIBAKE
    if patterns:
        yield from _search(measured, patterns)
    if measured.has(0x0A):
        yield from (("line_separator", i, "a line end inside a cell") for i, text in enumerate(texts) if "\n" in text)
    if _unstable()[present].any():
        yield from (
            ("not_nfc", index, _spell_difference(text))
            for index, text in enumerate(texts)
            if not unicodedata.is_normalized("NFC", text)
        )


def describe_character(character: str) -> str:
    """`U+2028 LINE SEPARATOR`, or the character itself when it can be seen."""
    code = f"U+{ord(character):04X}"
    if character.isprintable() and not character.isspace():
        return f"{character} ({code})"
    return f"{code} {unicodedata.name(character, _NAMES.get(character, ''))}".rstrip()


@cache
def _table() -> NDArray[np.uint8]:
    """For each code point, the number of its kind in `SUSPECTS`, from 1; 0 for all other characters."""
    table = np.zeros(CODE_POINTS, np.uint8)
    for index, members in enumerate(SUSPECTS.values(), start=1):
        for first, last in re.findall("(.)(?:-(.))?", members, re.DOTALL):
            table[ord(first) : ord(last or first) + 1] = index
    return table


@cache
def _unstable() -> NDArray[np.bool_]:
    """Code points that normal form C changes, reorders or may compose with the one before (UAX #15, quick check)."""
    table = np.zeros(CODE_POINTS, np.bool_)
    table[0x1161:0x1176] = table[0x11A8:0x11C3] = True  # the vowels and finals of Hangul compose by rule
    for code in range(0xC0, 0x30000):
        character = chr(code)
        if unicodedata.combining(character):
            table[code] = True
        elif decomposition := unicodedata.decomposition(character):
            parts = decomposition.split()
            if len(parts) == 2 and not parts[0].startswith("<"):
                table[int(parts[1], 16)] = True
            if not unicodedata.is_normalized("NFC", character):
                table[code] = True
    return table


def _search(measured: Measured, patterns: dict[str, re.Pattern[str]]) -> Iterator[Suspicion]:
    starts = list(accumulate((measured.lengths + 1).tolist(), initial=0))
    for kind, pattern in patterns.items():
        last = -1
        for match in pattern.finditer(measured.joined):
            index = bisect_right(starts, match.start()) - 1
            if index != last:
                found = match.group()
                what = describe_character(found) if len(found) == 1 else f'"{found}"'
                yield kind, index, f"{what} at character {match.start() - starts[index] + 1}"
                last = index


def _spell_difference(text: str) -> str:
    normal = unicodedata.normalize("NFC", text)
    index = next((i for i, (a, b) in enumerate(zip(text, normal, strict=False)) if a != b), min(len(text), len(normal)))
    before, after = (" ".join(f"U+{ord(c):04X}" for c in t[index : index + 2]) for t in (text, normal))
    return f"{before or 'nothing'} at character {index + 1} is {after or 'nothing'} in normal form C"


class ColumnStatistics:
    """Statistics of one column of a split; memory does not depend on the number of records."""

    def __init__(self) -> None:
        self.counts = np.zeros(CODE_POINTS, np.int64)
        """How often each code point occurs."""
        self.lengths = np.zeros(LONGEST + 1, np.int64)
        self.longest = 0
        self.words = 0
        self.vocabulary: Counter[str] = Counter()
        self.collected = 0
        self.full_stops = 0
        self.spaced_full_stops = 0

    def add(self, measured: Measured, tokens: Sequence[tuple[str, ...]] | None) -> None:
        """Add some texts; `tokens` are their words where the data is divided into words."""
        self.counts[: len(measured.histogram)] += measured.histogram
        self.words += int(measured.words.sum())
        self.longest = max(self.longest, int(measured.words.max(initial=0)))
        lengths = np.bincount(np.minimum(measured.words, LONGEST))
        self.lengths[: len(lengths)] += lengths
        if self.collected < VOCABULARY_LIMIT:
            self.collected += len(measured.joined)
            self.vocabulary.update(measured.joined.split() if tokens is None else chain.from_iterable(tokens))
        if tokens is None:
            self.full_stops += measured.full_stops
            self.spaced_full_stops += measured.spaced_full_stops

    def summary(self, known: "ColumnStatistics | None") -> TextStats:
        """Return the statistics to report; `known` is the same column of the training split."""
        widths = ((0, 0x80, 1), (0x80, 0x800, 2), (0x800, 0x10000, 3), (0x10000, CODE_POINTS, 4))
        return TextStats(
            words=self.words,
            characters=int(self.counts.sum()),
            bytes=sum(width * int(self.counts[first:last].sum()) for first, last, width in widths),
            distinct_words=len(self.vocabulary),
            distinct_characters=int(np.count_nonzero(self.counts)),
            vocabulary_complete=self.collected < VOCABULARY_LIMIT,
            lengths=self._describe_lengths(),
            coverage=None if known is None else self._compare(known),
        )

    def _describe_lengths(self) -> Lengths:
        records = int(self.lengths.sum())
        reached = np.cumsum(self.lengths)
        median, high = (int(np.searchsorted(reached, share * records)) if records else 0 for share in (0.5, 0.95))
        histogram: list[tuple[int, int]] = []
        first = 0
        while first <= min(self.longest, LONGEST):
            last = max(first, 2 * first - 1)  # 0, 1, 2-3, 4-7, 8-15, …
            histogram.append((last, int(self.lengths[first : last + 1].sum())))
            first = last + 1
        if self.longest > LONGEST:
            histogram[-1] = (self.longest, histogram[-1][1])
        mean = round(self.words / max(1, records), 2)
        return Lengths(mean=mean, median=median, high=high, longest=self.longest, histogram=tuple(histogram))

    def measure_known(self, other: "ColumnStatistics") -> float:
        """The share of the running words that also occur in another column."""
        known = sum(count for word, count in self.vocabulary.items() if word in other.vocabulary)
        return known / max(1, self.vocabulary.total())

    def _compare(self, known: "ColumnStatistics") -> Coverage:
        strange = np.flatnonzero((self.counts > 0) & (known.counts == 0))
        strange = strange[np.argsort(-self.counts[strange], kind="stable")]
        unseen = Counter({word: n for word, n in self.vocabulary.items() if word not in known.vocabulary})
        characters = int(self.counts.sum())
        return Coverage(
            words=self.measure_known(known) if self.vocabulary else 1.0,
            characters=1.0 - int(self.counts[strange].sum()) / max(1, characters),
            unseen_words=tuple(word[:40] for word, _ in unseen.most_common(5)),
            unseen_characters=tuple(describe_character(chr(code)) for code in strange[:5]),
        )
