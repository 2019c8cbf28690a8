"""What one column of a split is made of: sizes, lengths, vocabulary, and how much of it another column covers."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from seqloom.data.doctor.characters import describe_character, list_unseen
from seqloom.data.doctor.measure import CODE_POINTS, Measured, add_counts
from seqloom.data.doctor.report import Coverage, Lengths, TextStats

VOCABULARY_LIMIT = 1 << 24
"""Characters from which words are collected; of a longer column the rest counts for everything else."""
LONGEST = 1 << 14
"""Lengths in words above this are counted together."""


class Tally:
    """Grows chunk by chunk; memory does not depend on how many records there are."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, np.int64)
        """How often each code point occurs, up to the highest one."""
        self.lengths = np.zeros(LONGEST + 1, np.int64)
        self.longest = 0
        self.words = 0
        self.vocabulary: Counter[str] = Counter()
        self.collected = 0
        self.full_stops = 0
        self.spaced_full_stops = 0

    def add(self, measured: Measured, tokens: Sequence[tuple[str, ...]] | None) -> None:
        """Count some texts; `tokens` are their words where the data says what a word is."""
        self.counts = add_counts(self.counts, measured.histogram)
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

    def summary(self, known: "Tally | None") -> TextStats:
        """The numbers to report; `known` is the same column of the training split."""
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

    def _compare(self, known: "Tally") -> Coverage:
        strange = list_unseen(self.counts, known.counts)
        unseen = Counter({word: n for word, n in self.vocabulary.items() if word not in known.vocabulary})
        characters, words = int(self.counts.sum()), self.vocabulary.total()
        return Coverage(
            words=1.0 - unseen.total() / max(1, words),
            characters=1.0 - int(self.counts[strange].sum()) / max(1, characters),
            unseen_words=tuple(word[:40] for word, _ in unseen.most_common(5)),
            unseen_characters=tuple(describe_character(chr(code)) for code in strange[:5]),
        )
