"""Read the records of a corpus in the configuration, streaming, each with its file and line."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from typing import Literal

from seqloom.config.data import CorpusSection, Data, LabelledData
from seqloom.data.conll import ConllColumns, ConlluRows
from seqloom.data.examples import ANSWERS, Chunk, Example, Fault, raise_unreadable
from seqloom.data.files import Advance, find_files, ignore
from seqloom.data.formats import Format, ParallelLines, TextLines
from seqloom.data.tables import CommaSeparated, JsonLines, LabelFirst, ParquetTable, TabSeparated

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

FORMATS: dict[str, type[Format]] = {
    "text": TextLines,
    "parallel": ParallelLines,
    "tsv": TabSeparated,
    "csv": CommaSeparated,
    "jsonl": JsonLines,
    "parquet": ParquetTable,
    "label-first": LabelFirst,
    "conll": ConllColumns,
    "conllu": ConlluRows,
}
"""The class that reads each `format` of a corpus: the only list of them."""

RUN = 50
"""Consecutive lines of running text that stay on one side when some are held out."""


@dataclass(frozen=True, slots=True)
class Holdout:
    """Selects the training or the validation records when some of the training files are held out.

    The choice depends only on the record (or, for running text, its line), so it is the same in every run and needs no
    file. Records are chosen by a hash of their input, so equal inputs are never on both sides. Running text is held out
    in runs of consecutive lines, spread evenly over the file, so that context stays together.
    """

    fraction: float
    held_out: bool
    running_text: bool

    def select(self, chunk: Chunk) -> Chunk:
        """Select the records on this side."""
        chosen = self._choose_runs(chunk) if self.running_text else self._choose_hashed(chunk)
        return chunk.select([side == self.held_out for side in chosen])

    def explain_emptiness(self) -> str:
        """Say why nothing was held out, and what to do."""
        if self.running_text:
            first = ceil(1 / self.fraction) * RUN
            why = f"text is held out in runs of {RUN} lines, and the first is lines {first - RUN + 1:,} to {first:,}"
        else:
            why = "records are drawn by their input, equal ones together, and there are too few"
        remedy = "choose a larger fraction, or name files of its own in [data.valid]"
        return f"valid has no records with data.valid_fraction = {self.fraction:g}: {why}; {remedy}"

    def _choose_runs(self, chunk: Chunk) -> list[bool]:
        """Run r is held out where fraction·r passes a whole number."""
        runs = ((line - 1) // RUN for line in chunk.lines)
        return [floor((r + 1) * self.fraction) > floor(r * self.fraction) for r in runs]

    def _choose_hashed(self, chunk: Chunk) -> list[bool]:
        limit = int(self.fraction * 2**64)
        inputs = [column for role, column in chunk.columns.items() if role not in ANSWERS]
        return [_hash(row) < limit for row in zip(*inputs, strict=True)]


def _hash(row: tuple[str | tuple[str, ...], ...]) -> int:
    text = "\x1e".join(value if isinstance(value, str) else "\x1f".join(value) for value in row)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files of one format. Iterating yields examples and raises `DataError` at the first unreadable record."""

    section: CorpusSection
    base: Path
    """The folder that names of files are relative to."""
    max_line: int
    numbers: bool = False
    """Whether labels are numbers."""
    holdout: Holdout | None = None

    @property
    def weight(self) -> float:
        """How often an epoch sees each record."""
        return self.section.weight

    @property
    def format(self) -> Format:
        """A new reader of this format."""
        return FORMATS[self.section.format](self.section, numbers=self.numbers)

    def sides(self) -> tuple[dict[str, list[str]], list[Fault]]:
        """The files by key of the section, and faults for missing ones; the files of several keys correspond."""
        found = {key: find_files(names, self.base) for key, names in self.section.sides.items()}
        sides = {key: files for key, (files, _) in found.items()}
        faults = [fault for _, missing in found.values() for fault in missing]
        (first, leading), *others = sides.items()
        for key, files in others:
            if not faults and len(files) != len(leading):
                message = f"{first} lists {len(leading)} files, but {key} lists {len(files)}; give as many of each"
                faults = [Fault("unequal_files", leading[0], 0, message)]
        return sides, faults

    def files(self) -> list[str]:
        """Every file of the corpus that exists."""
        return [file for side in self.sides()[0].values() for file in side]

    def chunks(self, advance: Advance = ignore) -> Iterator[Chunk]:
        """Read all records with all faults; raises nothing."""
        sides, faults = self.sides()
        if faults:
            yield Chunk(faults[0].path, [], {}, faults)
        if any(fault.kind == "unequal_files" for fault in faults):
            return
        for files in zip(*sides.values(), strict=False):
            for chunk in self.format.read(dict(zip(sides, files, strict=True)), self.max_line, advance):
                yield self.holdout.select(chunk) if self.holdout else chunk

    def __iter__(self) -> Iterator[Example]:
        for chunk in self.chunks():
            raise_unreadable(chunk.faults)
            yield from chunk.examples()


def open_split(data: Data, split: Split, base: Path) -> tuple[Corpus, ...]:
    """The corpora of a split; without a validation split, `valid_fraction` of the training records make one."""
    divided = data.valid_fraction > 0.0 and split != "test"
    sections: tuple[CorpusSection, ...] = data.train if divided else getattr(data, split)
    return tuple(open_corpus(data, section, base, split == "valid" if divided else None) for section in sections)


def open_corpus(data: Data, section: CorpusSection, base: Path, held_out: bool | None = None) -> Corpus:
    """Open a corpus with the settings of `data`; `held_out` selects validation or training records, None all."""
    numbers = isinstance(data, LabelledData) and data.labels == "numbers"
    holdout = None
    if held_out is not None:
        holdout = Holdout(data.valid_fraction, held_out, FORMATS[section.format].running_text)
    return Corpus(section, base, data.max_line_bytes, numbers, holdout)
