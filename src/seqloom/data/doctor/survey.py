"""One split, read chunk by chunk: every check that a record, or a comparison within the split, can fail."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import eq
from typing import cast

import numpy as np

from seqloom.config.data import Data, LabelledData, ParallelData
from seqloom.data.chunk import ANSWERS, Chunk
from seqloom.data.doctor.characters import find_suspects
from seqloom.data.doctor.findings import Findings
from seqloom.data.doctor.ledger import (
    Column,
    Ledger,
    find_common,
    find_conflicts,
    find_first,
    find_repeats,
    hash_rows,
    log_ratios,
)
from seqloom.data.doctor.measure import Measured, measure
from seqloom.data.doctor.report import SplitStats
from seqloom.data.doctor.tally import Tally
from seqloom.data.fault import Fault

LABELS_SHOWN = 50
COPIED_WORDS = 4
"""A pair of equal texts with fewer words may well be a name or a number."""


class Survey:
    """What is known about a split so far."""

    def __init__(self, data: Data, split: str, findings: Findings, train: "Survey | None") -> None:
        self.data, self.split, self.findings, self.train = data, split, findings, train
        self.classes = not (isinstance(data, LabelledData) and data.labels == "numbers")
        self.records = 0
        self.path = ""
        """The first file with a record."""
        self.tallies: dict[str, Tally] = {}
        self.labels: Counter[str] = Counter()
        self.ledger = Ledger()

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
            self._check_copies(chunk, measured["source"])
        self._enter(chunk, measured, present)

    def finish(self) -> None:
        """Compare the records of the split with each other and with the training split."""
        ledger, records = self.ledger, self.ledger.column("record")
        if self.findings.wants("duplicate"):
            self._report_known("duplicate", find_repeats(records), "record", ledger)
        if isinstance(self.data, LabelledData) and self.classes and self.findings.wants("conflicting_label"):
            conflicts = find_conflicts(ledger.column("input"), records)
            self._report_known("conflicting_label", conflicts, "input", ledger)
        if self.train and self.findings.wants("overlap"):
            known = self.train.ledger
            self._report_known("overlap", find_common(ledger.column("input"), known.column("input")), "input", known)
        if isinstance(self.data, ParallelData) and self.findings.wants("length_ratio"):
            self._check_ratios(self.data.max_ratio)
        if self.train is None and isinstance(self.data, LabelledData) and self.classes and self.records > 1:
            self._check_label_set()

    def summary(self, files: int) -> SplitStats:
        """The numbers to report."""
        known = self.train.tallies if self.train else {}
        return SplitStats(
            split=self.split,
            records=self.records,
            files=files,
            columns={role: tally.summary(known.get(role)) for role, tally in self.tallies.items()},
            labels=dict(self.labels.most_common(LABELS_SHOWN)),
            distinct_labels=len(self.labels),
            compared=self.ledger.size,
        )

    def _read_column(self, role: str, chunk: Chunk) -> Measured:
        column = chunk.columns[role]
        tokens = cast("list[tuple[str, ...]]", column) if role == "words" else None
        texts = [" ".join(words) for words in tokens] if tokens is not None else cast("list[str]", column)
        measured = measure(texts)
        self.tallies.setdefault(role, Tally()).add(measured, tokens)
        for kind, index, what in find_suspects(measured):
            self._add(kind, chunk, index, what, role)
        for long in np.flatnonzero(measured.lengths > self.data.max_length).tolist():
            self._add("long_record", chunk, long, f"{measured.lengths[long]:,} characters", role)
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
                self._add("blank", chunk, index, "a blank line" if len(columns) == 1 else "both sides are blank")
        return np.flatnonzero(filled_roles)

    def _check_labels(self, chunk: Chunk) -> None:
        role = "label" if "label" in chunk.columns else "tags"
        if role not in chunk.columns or not self.classes:
            return
        column = chunk.columns[role]
        flat = cast("list[str]", column) if role == "label" else list(chain.from_iterable(column))
        seen = Counter(flat)
        self.labels.update(seen)
        if self.train and (strange := seen.keys() - self.train.labels.keys()):
            kind, name = ("unknown_label", "label") if role == "label" else ("unknown_tag", "tag")
            for index, value in enumerate(column):
                for label in strange.intersection([value] if isinstance(value, str) else value):
                    self._add(kind, chunk, index, f'the {name} "{label[:40]}" is not in the training split')

    def _check_copies(self, chunk: Chunk, source: Measured) -> None:
        same = np.fromiter(map(eq, chunk.columns["source"], chunk.columns["target"]), np.bool_, len(chunk))
        for index in np.flatnonzero(same & (source.words >= COPIED_WORDS)).tolist():
            self._add("untranslated", chunk, index, "target repeats source")

    def _enter(self, chunk: Chunk, measured: dict[str, Measured], present: Column) -> None:
        lines = chunk.lines
        columns = {
            "line": np.arange(lines.start, lines.stop) if isinstance(lines, range) else np.array(lines),
            "record": hash_rows(list(chunk.columns.values())),
        }
        inputs = [column for role, column in chunk.columns.items() if role not in ANSWERS]
        columns["input"] = columns["record"] if len(inputs) == len(chunk.columns) else hash_rows(inputs)
        if "target" in measured:
            columns |= {"left": measured["source"].lengths, "right": measured["target"].lengths}
        self.ledger.add(chunk.path, **{name: column[present] for name, column in columns.items()})

    def _report_known(self, kind: str, indices: Column, column: str, known: Ledger) -> None:
        hashes, others = self.ledger.column(column), known.column(column)
        described = indices[: self.findings.limit(kind)]
        for index, earlier in zip(described.tolist(), find_first(others, hashes[described]).tolist(), strict=True):
            path, line = self.ledger.place(index)
            other, where = known.place(earlier)
            place = f"line {where}" if other == path else f"{other}:{where}"
            self.findings.add(self.split, Fault(kind, path, line, f"as in {place}"))
        self._count_rest(kind, len(indices))

    def _check_ratios(self, max_ratio: float) -> None:
        left, right = self.ledger.column("left"), self.ledger.column("right")
        both = (left > 0) & (right > 0)
        wild = np.flatnonzero((np.abs(log_ratios(left, right)) > np.log(max_ratio)) & both)
        for index in wild[: self.findings.limit("length_ratio")].tolist():
            path, line = self.ledger.place(index)
            message = f"{left[index]:,} characters against {right[index]:,}"
            self.findings.add(self.split, Fault("length_ratio", path, line, message))
        self._count_rest("length_ratio", len(wild))

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
            message = (
                f'{len(self.labels):,} labels for {self.records:,} records, such as "{next(iter(self.labels))[:40]}"'
            )
            self.findings.add(self.split, Fault("many_labels", self.path, 0, message))
