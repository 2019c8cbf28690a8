"""Checks one split, chunk by chunk: each record, then the records compared with each other and with training.

Records are compared by a 64-bit hash, so a record costs about thirty bytes whatever its length. Two different records
of a split of n have the same hash with probability n²/2⁶⁵: one in a hundred thousand for ten million. Of a split with
more records than `LIMIT`, the first `LIMIT` are compared.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from operator import eq
from typing import cast

import numpy as np

from seqloom.config.data import Data, LabelledData, ParallelData
from seqloom.data.doctor.alignment import log_ratios
from seqloom.data.doctor.characters import ColumnStatistics, Integers, Measured, find_suspects, measure
from seqloom.data.doctor.report import Findings, SplitStats
from seqloom.data.examples import ANSWERS, Chunk, Fault
from seqloom.text.sentences import find_sentences

LIMIT = 1 << 24
LABELS_SHOWN = 50
SENTENCES_LIMIT, SENTENCES_STEP = 1 << 16, 16
"""All sources up to this number are searched for several sentences, and every sixteenth after it."""
SAME_SHARE, SAME_PAIRS = 0.5, 10
"""Where this share and number of the targets repeat the sources, one file was probably named twice."""
COPIED_WORDS = 4
"""A pair of equal texts with fewer words may be a name or a number."""


class RecordIndex:
    """Hashes, lines and lengths of the records of a split, in order, without the blank ones."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: dict[str, list[Integers]] = {}
        self._paths: list[str] = []
        self._firsts: list[int] = []

    def add(self, path: str, **columns: Integers) -> None:
        """Add some records of a file: `line`; `record` and `input`, hashes; for pairs `left` and `right`, lengths."""
        room = LIMIT - self.size
        if not self._paths or self._paths[-1] != path:
            self._paths.append(path)
            self._firsts.append(self.size)
        for name, column in columns.items():
            compact: Integers = column if name in ("record", "input") else column.astype(np.int32)
            self._parts.setdefault(name, []).append(compact[:room])
        self.size += min(room, len(columns["line"]))

    def column(self, name: str) -> Integers:
        """Return one column of all records."""
        parts = self._parts.get(name, [])
        if len(parts) > 1:
            self._parts[name] = parts = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0, np.int64)

    def place(self, index: int) -> tuple[str, int]:
        """Return the file and line of a record."""
        return self._paths[bisect_right(self._firsts, index) - 1], int(self.column("line")[index])

    def files(self) -> Iterator[tuple[str, slice]]:
        """Yield each file with its slice of the columns."""
        for path, (first, last) in zip(self._paths, pairwise([*self._firsts, self.size]), strict=True):
            yield path, slice(first, last)


def hash_rows(columns: Sequence[Sequence[str | tuple[str, ...]]]) -> Integers:
    """Hash each row; equal rows have equal hashes within this process."""
    rows = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
    return np.fromiter(map(hash, rows), np.int64, len(columns[0]))


def find_duplicates(hashes: Integers) -> Integers:
    """The indices of records that repeat an earlier one, in order."""
    ordered = np.sort(hashes)  # several times faster than argsort, and most records have no duplicate
    candidates = _find_among(hashes, ordered[1:][ordered[1:] == ordered[:-1]])
    order = np.argsort(hashes[candidates], kind="stable")
    ordered = hashes[candidates][order]
    return np.sort(candidates[order[1:][ordered[1:] == ordered[:-1]]])


def find_common(hashes: Integers, known: Integers) -> Integers:
    """The indices of records that are also in `known`."""
    return _find_among(hashes, np.sort(known))


def find_conflicts(inputs: Integers, records: Integers) -> Integers:
    """The indices of records that have the same input as an earlier, different record."""
    order = np.argsort(inputs, kind="stable")
    ordered = inputs[order]
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    first = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]  # the first record with this input
    return np.sort(order[records[order] != records[first]])


def find_first(hashes: Integers, values: Integers) -> Integers:
    """The first index of each value; every value must be among the hashes."""
    candidates = _find_among(hashes, np.sort(values))
    order = candidates[np.argsort(hashes[candidates], kind="stable")]
    return order[np.searchsorted(hashes[order], values)]


def _find_among(hashes: Integers, ordered: Integers) -> Integers:
    """The indices of the hashes that are among `ordered`, which is sorted."""
    if not len(ordered):
        return np.zeros(0, np.int64)
    nearest = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
    return np.flatnonzero(ordered[nearest] == hashes)


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
        self.searched = 0
        """Sources that were searched for several sentences."""
        self.several = 0
        """Those that have several."""
        self.same = 0
        """Pairs whose target is the same as the source."""

    def add(self, chunk: Chunk) -> None:
        """Check the records of a chunk."""
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
            self._count_sentences(measured["source"].texts, self.data.source_language)
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
        if self.same >= max(SAME_PAIRS, SAME_SHARE * self.records):
            message = (
                f"{self.same / self.records:.0%} of the targets are the same as their sources: is one file named "
                'twice? If copying is the task, set data.checks.same_sides = "warn"'
            )
            self.findings.add(self.split, Fault("same_sides", self.path, 0, message))
        if self.train is None and isinstance(self.data, LabelledData) and self.classes and self.records > 1:
            self._check_label_set()

    def summary(self, files: int) -> SplitStats:
        """Return the statistics to report."""
        known = self.train.statistics if self.train else {}
        return SplitStats(
            split=self.split,
            records=self.records,
            files=files,
            columns={role: column.summary(known.get(role)) for role, column in self.statistics.items()},
            labels=dict(self.labels.most_common(LABELS_SHOWN)),
            distinct_labels=len(self.labels),
            compared=self.index.size,
            several_sentences=self.several / max(1, self.searched) if isinstance(self.data, ParallelData) else None,
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

    def _check_blanks(self, chunk: Chunk, columns: Sequence[Measured]) -> Integers:
        """Report blank texts; returns the indices of records with at least one text that is not blank."""
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
        self.same += int(np.count_nonzero(same & (source.words > 0)))
        for index in np.flatnonzero(same & (source.words >= COPIED_WORDS)).tolist():
            self._add("untranslated", chunk, index, "the target is the same as the source")

    def _count_sentences(self, sources: Sequence[str], language: str | None) -> None:
        searched = sources if self.records <= SENTENCES_LIMIT else sources[::SENTENCES_STEP]
        self.searched += len(searched)
        self.several += sum(len(find_sentences(text, language)) > 1 for text in searched)

    def _add_to_index(self, chunk: Chunk, measured: dict[str, Measured], present: Integers) -> None:
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

    def _report_known(self, kind: str, what: str, indices: Integers, column: str, known: RecordIndex) -> None:
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
        unusual = np.abs(log_ratios(left, right)) > np.log(max_ratio)
        unusual = np.flatnonzero(unusual & (left > 0) & (right > 0))
        for index in unusual[: self.findings.limit("length_ratio")].tolist():
            path, line = self.index.place(index)
            message = f"the source has {left[index]:,} characters, the target {right[index]:,}"
            self.findings.add(self.split, Fault("length_ratio", path, line, message))
        self._count_rest("length_ratio", len(unusual))

    def _count_rest(self, kind: str, total: int) -> None:
        """Count the places that are not described one by one."""
        described = self.findings.limit(kind)
        if described is not None and total > described:
            self.findings.counts[self.split, kind] += total - described

    def _check_label_set(self) -> None:
        if joined := [label for label in self.labels if "|" in label]:
            message = (
                f"{len(joined):,} label{'s' * (len(joined) > 1)} contain{'s' * (len(joined) == 1)} '|', such as "
                f'"{joined[0][:40]}": a record has one label here; multi-label is not supported'
            )
            self.findings.add(self.split, Fault("joined_labels", self.path, 0, message))
        if len(self.labels) == 1:
            message = f'every record has the label "{next(iter(self.labels))[:40]}"'
            self.findings.add(self.split, Fault("single_label", self.path, 0, message))
        elif len(self.labels) > self.records / 2 and self.records >= 10:
            example = next(iter(self.labels))[:40]
            message = f'there are {len(self.labels):,} labels for {self.records:,} records, such as "{example}"'
            self.findings.add(self.split, Fault("many_labels", self.path, 0, message))
