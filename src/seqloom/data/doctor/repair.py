"""A repaired copy of all data, a log of every change, and the configuration that uses the copy.

First every line is cleaned on its own. Parallel files of unequal line counts are cut down to the lines that still
correspond. Then the copy is examined, and every record that is still an error is left out, on both sides of a pair,
until none remains. So the severity of a finding decides: warnings stay, errors go. The original files are only read.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np

from seqloom.config.data import CorpusSection, Data
from seqloom.data.corpus import SPLITS, Corpus, open_split
from seqloom.data.doctor.alignment import pair_lines
from seqloom.data.doctor.characters import Integers
from seqloom.data.doctor.clean import clean_json, clean_text, copy_clean
from seqloom.data.doctor.examination import examine_into
from seqloom.data.doctor.report import Findings, Report
from seqloom.data.examples import BadRecord
from seqloom.data.files import STDIN, read_blocks
from seqloom.data.formats import Format, Line
from seqloom.errors import DataError

ROUNDS = 10
"""Leaving a record out can reveal another fault: a stray quote, for example, hides the rest of a file."""
NOT_BY_LINE = frozenset({"unknown_column", "unequal_lines", "misaligned"})
"""Errors that remain when their line is left out."""
SHOWN = 1000
"""Characters of a text that the log repeats."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did."""

    changes: Mapping[tuple[str, str], int]
    """How many times, by kind of finding and change."""
    data: Data
    """The configuration of the copy."""
    report: Report
    """What the doctor says about the copy."""


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
    with (folder / "changes.jsonl").open("w", encoding="utf-8") as stream:
        log = ChangeLog(stream)
        copied = _Copies(data, base, folder, log)
        for _ in range(ROUNDS):
            findings = Findings(data.checks, remember=True)
            report = examine_into(findings, copied.data, base)
            if not copied.drop(findings.error_lines):
                break
        return Repair(dict(log.counts), copied.data, report)


class ChangeLog:
    """`changes.jsonl`: one object for each change, with the file and line of the original."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.counts: Counter[tuple[str, str]] = Counter()
        """How many times, by kind of finding and change."""

    def write(self, file: str, line: int, kind: str, change: str, **details: str | int) -> None:
        """Note a change."""
        self.counts[kind, change] += int(details.get("lines", 1))
        shown = {key: value[:SHOWN] if isinstance(value, str) else value for key, value in details.items()}
        entry = {"file": file, "line": line, "kind": kind, "change": change, **shown}
        text = json.dumps(entry, ensure_ascii=False)
        for separator in ("\x85", "\u2028", "\u2029"):  # some tools take these for line ends
            text = text.replace(separator, f"\\u{ord(separator):04x}")
        self.stream.write(text + "\n")


@dataclass(slots=True)
class CopiedFile:
    """A file of the copy, with the original line number of each line."""

    original: str
    path: Path
    format: Format
    numbers: Integers
    """For each line, its number in the original."""

    def lines(self) -> Iterator[Line]:
        """The lines, numbered from 1."""
        for block in read_blocks(str(self.path), max_line=1 << 62):
            yield from enumerate(block.lines, start=block.first)

    def widen(self, faulty: dict[int, str]) -> dict[int, str]:
        """Return all lines of the records that have a faulty line."""
        if self.format.one_line:
            return faulty
        widened = dict(faulty)
        try:
            for group in self.format.split(self.lines()):
                kind = next((faulty[number] for number, _ in group if number in faulty), None)
                if kind is not None:
                    widened |= {number: kind for number, _ in group}
        except BadRecord:  # the rest cannot be divided into records: drop single lines
            pass
        return widened

    def drop(self, lines: dict[int, str], log: ChangeLog) -> None:
        """Leave out lines, each for a kind of fault."""
        kept: list[int] = []

        def remaining() -> Iterable[str]:
            for number, text in self.lines():
                if number in lines:
                    log.write(self.original, int(self.numbers[number - 1]), lines[number], "dropped", before=text)
                else:
                    kept.append(number - 1)
                    yield text + "\n"

        shorter = self.path.with_name(self.path.name + ".part")
        with shorter.open("w", encoding="utf-8", newline="\n") as out:
            out.writelines(remaining())
        shorter.replace(self.path)
        self.numbers = self.numbers[kept]


class _Copies:
    """The files of the copy, and which of them correspond."""

    def __init__(self, data: Data, base: Path, folder: Path, log: ChangeLog) -> None:
        self.base, self.folder, self.log, self.checks = base, folder, log, data.checks
        self.copies: dict[str, CopiedFile] = {}
        """By the name that the configuration gives them."""
        self.partners: dict[str, tuple[str, ...]] = {}
        whole = data.model_copy(update={"valid_fraction": 0.0})  # records are held out after the repair
        self.data: Data = data.model_copy(
            update={
                split: tuple(self._copy(corpus, split) for corpus in open_split(whole, split, base)) for split in SPLITS
            }
        )

    def drop(self, error_lines: Mapping[str, Mapping[int, str]]) -> bool:
        """Leave out the records at these lines; returns whether there were any."""
        wanted: dict[str, dict[int, str]] = {}
        for name, copy in self.copies.items():
            faulty = error_lines.get(str(self.base / name), {})
            lines = copy.widen({line: kind for line, kind in faulty.items() if kind not in NOT_BY_LINE})
            for side in self.partners.get(name, (name,)):
                wanted[side] = lines | wanted.get(side, {})
        for name, copy in self.copies.items():
            if wanted[name]:
                copy.drop(wanted[name], self.log)
        return any(wanted.values())

    def _copy(self, corpus: Corpus, split: str) -> CorpusSection:
        if table := corpus.format.as_json(corpus.section):
            return table.replace_files([self._copy_table(corpus, file, split) for file in corpus.files()])
        originals = corpus.sides()[0]
        sides = {key: tuple(self._copy_file(corpus, file, split) for file in side) for key, side in originals.items()}
        if "alignment" in sides and any(self._is_unequal(names) for names in zip(*sides.values(), strict=False)):
            # An alignment does not show where a line is missing, and none is better than a wrong one.
            self.log.write(originals["alignment"][0], 0, "unequal_lines", "dropped", before="the alignment")
            sides["alignment"] = ()
        for names in zip(*filter(None, sides.values()), strict=False):
            self.partners |= dict.fromkeys(names, names)
            if len(names) > 1:
                self._realign(self.copies[names[0]], self.copies[names[1]], corpus.max_line)
        return corpus.section.model_copy(update=sides)

    def _copy_file(self, corpus: Corpus, file: str, split: str) -> str:
        name, copy = self._start(corpus, file, split)
        copy_clean(
            file,
            copy.path,
            self.checks,
            corpus.max_line,
            partial(self.log.write, file),
            clean=clean_json if copy.format.escapes else clean_text,
            stand_in="" if copy.format.one_line else "\ufffd",  # in a table, a row of this is an error and goes
        )
        copy.numbers = np.arange(1, 1 + sum(1 for _ in copy.lines()))
        return name

    def _copy_table(self, corpus: Corpus, file: str, split: str) -> str:
        """A Parquet table as JSON lines, which can be repaired line by line."""
        name, copy = self._start(corpus, f"{file}.jsonl", split)
        copy.original, rows = file, []
        with copy.path.open("w", encoding="utf-8", newline="\n") as out:
            for chunk in corpus.format.read({"files": file}, corpus.max_line):
                for fault in chunk.faults:
                    self.log.write(file, fault.line, fault.kind, "dropped", before=fault.message)
                for example in chunk.examples():
                    text, kinds = clean_json(json.dumps(dict(example.values)), self.checks)
                    for kind in kinds:
                        self.log.write(file, example.line, kind, "repaired", after=text)
                    out.write(text + "\n")
                    rows.append(example.line)
        copy.numbers = np.array(rows, np.int64)
        return name

    def _start(self, corpus: Corpus, file: str, split: str) -> tuple[str, CopiedFile]:
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
        self.copies[written] = CopiedFile(file, path, corpus.format, np.zeros(0, np.int64))
        return written, self.copies[written]

    def _is_unequal(self, names: Sequence[str]) -> bool:
        return len({len(self.copies[name].numbers) for name in names}) > 1

    def _realign(self, left: CopiedFile, right: CopiedFile, max_line: int) -> None:
        if len(left.numbers) == len(right.numbers):
            return
        pairs = pair_lines(str(left.path), str(right.path), max_line)
        if pairs is not None:
            for copy, kept in zip((left, right), pairs, strict=True):
                lost = np.setdiff1d(np.arange(len(copy.numbers)), kept) + 1
                copy.drop(dict.fromkeys(lost.tolist(), "unequal_lines"), self.log)
