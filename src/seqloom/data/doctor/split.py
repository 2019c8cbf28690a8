"""One split, read chunk by chunk: every check that a record, or a comparison within the split, can fail."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import eq
from typing import cast

import numpy as np

from seqloom.config.data import Data, LabelledData, ParallelData
from seqloom.data.doctor.alignment import log_ratios
from seqloom.data.doctor.characters import (
    CODE_POINTS,
    Measured,
    add_counts,
    describe_character,
    find_suspects,
    list_unseen,
    measure,
)
from seqloom.data.doctor.duplicates import (
    Column,
    RecordIndex,
    find_common,
    find_conflicts,
    find_duplicates,
    find_first,
    hash_rows,
)
from seqloom.data.doctor.report import Coverage, Findings, Lengths, SplitStats, TextStats
from seqloom.data.examples import ANSWERS, Chunk, Fault

LABELS_SHOWN = 50
COPIED_WORDS = 4
"""A pair of equal texts with fewer words may well be a name or a number."""
VOCABULARY_LIMIT = 1 << 24
"""Characters from which words are collected; of a longer column the rest counts for everything else."""
LONGEST = 1 << 14
"""Lengths in words above this are counted together."""


class ColumnStatistics:
    """What one column of a split is made of, chunk by chunk; memory does not depend on the number of records."""

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

    def summary(self, known: "ColumnStatistics | None") -> TextStats:
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

    def _compare(self, known: "ColumnStatistics") -> Coverage:
        strange = list_unseen(self.counts, known.counts)
        unseen = Counter({word: n for word, n in self.vocabulary.items() if word not in known.vocabulary})
        characters, words = int(self.counts.sum()), self.vocabulary.total()
        return Coverage(
            words=1.0 - unseen.total() / max(1, words),
            characters=1.0 - int(self.counts[strange].sum()) / max(1, characters),
            unseen_words=tuple(word[:40] for word, _ in unseen.most_common(5)),
            unseen_characters=tuple(describe_character(chr(code)) for code in strange[:5]),
        )


class SplitExaminer:
    """Checks a split chunk by chunk."""

    def __init__(self, data: Data, split: str, findings: Findings, train: "SplitExaminer | None") -> None:
        self.data, self.split, self.findings, self.train = data, split, findings, train
        self.classes = not (isinstance(data, LabelledData) and data.labels == "numbers")
        self.records = 0
        self.path = ""
        """The first file with a record."""
        self.statistics: dict[str, ColumnStatistics] = {}
        self.labels: Counter[str] = Counter()
        self.index = RecordIndex()

    def add(self, chunk: Chunk) -> None:
        """Check some records."""
        for fault in chunk.faults:
            self.findings.add(self.split, fault)
        if not len(chunk):
            return
        self.records += len(chunk)
        self.path = self.path or chunk.path
        measured = {
            role: self._read_column(role, chunk) for role in chunk.columns if role not in ("label", "tags", "alignment")
        }
        present = self._check_blanks(chunk, list(measured.values()))
        self._check_labels(chunk)
        if isinstance(self.data, ParallelData):
            self._check_untranslated(chunk, measured["source"])
        self._add_to_index(chunk, measured, present)

    def finish(self) -> None:
        """Compare the records of the split with each other and with the training split."""
        index, records = self.index, self.index.column("record")
        if self.findings.wants("duplicate"):
            self._report_known("duplicate", "the same record is", find_duplicates(records), "record", index)
        if isinstance(self.data, LabelledData) and self.classes and self.findings.wants("conflicting_label"):
            conflicts = find_conflicts(index.column("input"), records)
            self._report_known("conflicting_label", "the same text has another label", conflicts, "input", index)
        if self.train and self.findings.wants("overlap"):
            known = self.train.index
            common = find_common(index.column("input"), known.column("input"))
            self._report_known("overlap", "the same input is", common, "input", known)
        if isinstance(self.data, ParallelData) and self.findings.wants("length_ratio"):
            self._check_ratios(self.data.max_ratio)
        if self.train is None and isinstance(self.data, LabelledData) and self.classes and self.records > 1:
            self._check_label_set()

    def summary(self, files: int) -> SplitStats:
        """The numbers to report."""
        known = self.train.statistics if self.train else {}
        return SplitStats(
            split=self.split,
            records=self.records,
            files=files,
            columns={role: column.summary(known.get(role)) for role, column in self.statistics.items()},
            labels=dict(self.labels.most_common(LABELS_SHOWN)),
            distinct_labels=len(self.labels),
            compared=self.index.size,
        )

    def _read_column(self, role: str, chunk: Chunk) -> Measured:
        column = chunk.columns[role]
        tokens = cast("list[tuple[str, ...]]", column) if role == "words" else None
        texts = [" ".join(words) for words in tokens] if tokens is not None else cast("list[str]", column)
        measured = measure(texts)
        self.statistics.setdefault(role, ColumnStatistics()).add(measured, tokens)
        for kind, index, what in find_suspects(measured):
            self._add(kind, chunk, index, what, role)
        for long in np.flatnonzero(measured.lengths > self.data.max_length).tolist():
            self._add("long_record", chunk, long, f"the text has {measured.lengths[long]:,} characters", role)
        return measured

    def _add(self, kind: str, chunk: Chunk, index: int, message: str, role: str = "") -> None:
        if role and role not in chunk.paths and len(chunk.columns) > 1:
            message = f"{role}: {message}"
        self.findings.add(self.split, Fault(kind, chunk.paths.get(role, chunk.path), chunk.lines[index], message))

    def _check_blanks(self, chunk: Chunk, columns: Sequence[Measured]) -> Column:
        """Report blank texts and return the indices of records that are not blank altogether."""
        filled = np.stack([column.words > 0 for column in columns])
        filled_roles = filled.sum(axis=0)
        labelled = "label" in chunk.columns
        for index in np.flatnonzero(filled_roles < len(columns)).tolist():
            if filled_roles[index] or labelled:
                blank = next(role for role, ok in zip(chunk.columns, filled[:, index], strict=False) if not ok)
                self._add("one_sided_blank", chunk, index, f"the {blank} is blank", blank if chunk.paths else "")
            else:
                self._add("blank", chunk, index, "the line is blank" if len(columns) == 1 else "both sides are blank")
        return np.flatnonzero(filled_roles)

    def _check_labels(self, chunk: Chunk) -> None:
        role = "label" if "label" in chunk.columns else "tags"
        if role not in chunk.columns or not self.classes:
            return
        column = chunk.columns[role]
        flat = cast("list[str]", column) if role == "label" else list(chain.from_iterable(column))
        seen = Counter(flat)
        self.labels.update(seen)
        if self.train and (unknown := seen.keys() - self.train.labels.keys()):
            kind, name = ("unknown_label", "label") if role == "label" else ("unknown_tag", "tag")
            for index, value in enumerate(column):
                for label in unknown.intersection([value] if isinstance(value, str) else value):
                    self._add(kind, chunk, index, f'the {name} "{label[:40]}" is not in the training split')

    def _check_untranslated(self, chunk: Chunk, source: Measured) -> None:
        same = np.fromiter(map(eq, chunk.columns["source"], chunk.columns["target"]), np.bool_, len(chunk))
        for index in np.flatnonzero(same & (source.words >= COPIED_WORDS)).tolist():
            self._add("untranslated", chunk, index, "the target is the same as the source")

    def _add_to_index(self, chunk: Chunk, measured: dict[str, Measured], present: Column) -> None:
        lines = chunk.lines
        columns = {
            "line": np.arange(lines.start, lines.stop) if isinstance(lines, range) else np.array(lines),
            "record": hash_rows(list(chunk.columns.values())),
        }
        inputs = [column for role, column in chunk.columns.items() if role not in ANSWERS]
        columns["input"] = columns["record"] if len(inputs) == len(chunk.columns) else hash_rows(inputs)
        if "target" in measured:
            columns |= {"left": measured["source"].lengths, "right": measured["target"].lengths}
        self.index.add(chunk.path, **{name: column[present] for name, column in columns.items()})

    def _report_known(self, kind: str, what: str, indices: Column, column: str, known: RecordIndex) -> None:
        hashes, others = self.index.column(column), known.column(column)
        described = indices[: self.findings.limit(kind)]
        for index, earlier in zip(described.tolist(), find_first(others, hashes[described]).tolist(), strict=True):
            path, line = self.index.place(index)
            other, where = known.place(earlier)
            place = f"line {where}" if other == path else f"{other}:{where}"
            self.findings.add(self.split, Fault(kind, path, line, f"{what} in {place}"))
        self._count_rest(kind, len(indices))

    def _check_ratios(self, max_ratio: float) -> None:
        left, right = self.index.column("left"), self.index.column("right")
        both = (left > 0) & (right > 0)
        unusual = np.flatnonzero((np.abs(log_ratios(left, right)) > np.log(max_ratio)) & both)
        for index in unusual[: self.findings.limit("length_ratio")].tolist():
            path, line = self.index.place(index)
            message = f"the source has {left[index]:,} characters, the target {right[index]:,}"
            self.findings.add(self.split, Fault("length_ratio", path, line, message))
        self._count_rest("length_ratio", len(unusual))

    def _count_rest(self, kind: str, total: int) -> None:
        """Count what was found beyond the places described one by one."""
        described = self.findings.limit(kind)
        if described is not None and total > described:
            self.findings.counts[self.split, kind] += total - described

    def _check_label_set(self) -> None:
        if len(self.labels) == 1:
            message = f'every record has the label "{next(iter(self.labels))[:40]}"'
            self.findings.add(self.split, Fault("single_label", self.path, 0, message))
        elif len(self.labels) > self.records / 2 and self.records >= 10:
            example = next(iter(self.labels))[:40]
            message = f'there are {len(self.labels):,} labels for {self.records:,} records, such as "{example}"'
            self.findings.add(self.split, Fault("many_labels", self.path, 0, message))
