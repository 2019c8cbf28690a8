"""A repaired copy of all data, a log of every change, and the configuration that uses the copy.

First every line is cleaned on its own. Parallel files of unequal line counts are cut down to the lines that still
belong together. Then the copy is examined, and every record that is still an error is left out, on both sides of a
pair, until none remains. So the weight of a finding decides: what is a warning stays, what is an error goes. The
original files are only read.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqloom.config.data import CorpusSection, Data, Keyed, ParallelFiles, TaggedFiles, named_columns
from seqloom.data.corpus import SPLITS, Corpus, open_split
from seqloom.data.doctor.clean import clean_json, clean_text, copy_clean
from seqloom.data.doctor.copies import Copy, Journal
from seqloom.data.doctor.examination import examine_into
from seqloom.data.doctor.findings import Findings
from seqloom.data.doctor.realign import pair_lines
from seqloom.data.doctor.report import Report
from seqloom.data.places import STDIN
from seqloom.errors import DataError

ROUNDS = 10
"""Leaving a record out can bring another fault to light, as when a stray quote hid the rest of a file."""
NOT_BY_LINE = frozenset({"unknown_column", "unequal_lines", "misaligned"})
"""Errors that leaving out the line where they show does not cure."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did."""

    changes: Mapping[tuple[str, str], int]
    """How many times, by kind of finding and change."""
    data: Data
    """The configuration of the copy."""
    report: Report
    """What the doctor says to the copy."""


def repair(data: Data, base: Path, folder: Path) -> Repair:
    """Write the copy into a new folder."""
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder}: the folder is not empty; name a new one, so that nothing is overwritten")
    for corpus in (corpus for split in SPLITS for corpus in open_split(data, split, base)):
        for fault in corpus.sides()[1]:
            raise fault.error()
        if STDIN in corpus.files():
            raise DataError("standard input cannot be repaired; save it to a file first")
    folder.mkdir(parents=True, exist_ok=True)
    with Journal(folder / "changes.jsonl") as journal:
        copied = _Copied(data, base, folder, journal)
        for _ in range(ROUNDS):
            findings = Findings(data.checks, remember=True)
            report = examine_into(findings, copied.data, base)
            if not copied.drop(findings.error_lines):
                break
        return Repair(dict(journal.counts), copied.data, report)


class _Copied:
    """The copies and how they belong together."""

    def __init__(self, data: Data, base: Path, folder: Path, journal: Journal) -> None:
        self.base, self.folder, self.journal, self.checks = base, folder, journal, data.checks
        self.copies: dict[str, Copy] = {}
        """By the name that the configuration gives them."""
        self.partners: dict[str, tuple[str, ...]] = {}
        whole = data.model_copy(update={"valid_fraction": 0.0})  # records are held out after the repair
        self.data: Data = data.model_copy(
            update={
                split: tuple(self._copy(corpus, split) for corpus in open_split(whole, split, base)) for split in SPLITS
            }
        )

    def drop(self, error_lines: Mapping[str, Mapping[int, str]]) -> bool:
        """Leave out the records at these lines; whether there were any."""
        wanted: dict[str, dict[int, str]] = {}
        for name, copy in self.copies.items():
            faulty = error_lines.get(str(self.base / name), {})
            lines = copy.widen({line: kind for line, kind in faulty.items() if kind not in NOT_BY_LINE})
            for side in self.partners.get(name, (name,)):
                wanted[side] = lines | wanted.get(side, {})
        for name, copy in self.copies.items():
            if wanted[name]:
                copy.drop(wanted[name], self.journal)
        return any(wanted.values())

    def _copy(self, corpus: Corpus, split: str) -> CorpusSection:
        match corpus.section:
            case ParallelFiles() | TaggedFiles() as section:
                sides = [tuple(self._copy_file(corpus, file, split) for file in side) for side in corpus.sides()[0]]
                if len(sides) == 3 and any(self._is_unequal(names) for names in zip(*sides, strict=False)):
                    # Numbers do not tell where a line is missing: texts without their alignment are better than wrong.
                    self.journal.write(corpus.sides()[0][2][0], 0, "unequal_lines", "dropped", before="the alignment")
                    sides[2] = ()
                for names in zip(*filter(None, sides), strict=False):
                    self.partners |= dict.fromkeys(names, names)
                    self._realign(self.copies[names[0]], self.copies[names[1]], corpus.max_line)
                return section.model_copy(update=dict(zip(corpus.roles(), sides, strict=True)))
            case Keyed(format="parquet") as section:
                names = tuple(self._copy_table(corpus, file, split) for file in corpus.files())
                columns = type(section.columns).model_validate({role: role for role in named_columns(section)})
                return section.model_copy(update={"format": "jsonl", "files": names, "columns": columns})
            case section:
                names = tuple(self._copy_file(corpus, file, split) for file in corpus.files())
                return section.model_copy(update={"files": names})

    def _copy_file(self, corpus: Corpus, file: str, split: str) -> str:
        name, copy = self._start(corpus, file, split)

        def log(line: int, kind: str, change: str, **details: str | int) -> None:
            self.journal.write(file, line, kind, change, **details)

        copy_clean(
            file,
            copy.path,
            self.checks,
            corpus.max_line,
            log,
            clean=clean_json if isinstance(corpus.section, Keyed) else clean_text,
            stand_in="\ufffd" if copy.layout else "",  # in a table, a row of this is an error and goes
        )
        copy.number()
        return name

    def _copy_table(self, corpus: Corpus, file: str, split: str) -> str:
        """A Parquet table as JSON lines, which can be repaired line by line."""
        name, copy = self._start(corpus, f"{file}.jsonl", split)
        copy.original, rows = file, []
        with copy.path.open("w", encoding="utf-8", newline="\n") as out:
            for chunk in corpus.read((file,)):
                for fault in chunk.faults:
                    self.journal.write(file, fault.line, fault.kind, "dropped", before=fault.message)
                for example in chunk.examples():
                    text, kinds = clean_json(json.dumps(dict(example.values)), self.checks)
                    for kind in kinds:
                        self.journal.write(file, example.line, kind, "repaired", after=text)
                    out.write(text + "\n")
                    rows.append(example.line)
        copy.numbers = np.array(rows, np.int64)
        return name

    def _start(self, corpus: Corpus, file: str, split: str) -> tuple[str, Copy]:
        name = Path(file).name
        for suffix in (".gz", ".xz", ".bz2"):
            name = name.removesuffix(suffix)
        (self.folder / split).mkdir(exist_ok=True)
        path, tries = self.folder / split / name, 1
        while path.exists():
            tries += 1
            path = self.folder / split / f"{tries}-{name}"
        path.touch()
        written = Path(os.path.relpath(path, self.base)).as_posix()
        self.copies[written] = Copy(file, path, corpus.layout(), np.zeros(0, np.int64))
        return written, self.copies[written]

    def _is_unequal(self, names: Sequence[str]) -> bool:
        return len({len(self.copies[name].numbers) for name in names}) > 1

    def _realign(self, left: Copy, right: Copy, max_line: int) -> None:
        if len(left.numbers) == len(right.numbers):
            return
        pairs = pair_lines(str(left.path), str(right.path), max_line)
        if pairs is not None:
            for copy, kept in zip((left, right), pairs, strict=True):
                lost = np.setdiff1d(np.arange(len(copy.numbers)), kept) + 1
                copy.drop(dict.fromkeys(lost.tolist(), "unequal_lines"), self.journal)
