"""A corpus of the configuration -> its records, streaming, each with its file and line."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never

from seqloom.config.data import (
    ConllFiles,
    ConlluFiles,
    CorpusSection,
    Data,
    Delimited,
    Keyed,
    LabelFirstFiles,
    LabelledData,
    ParallelFiles,
    TaggedFiles,
    TextFiles,
    named_columns,
)
from seqloom.data.alignment import check_alignments
from seqloom.data.chunk import Chunk
from seqloom.data.conll import ConllColumns, ConlluRows
from seqloom.data.example import Example
from seqloom.data.fault import UNREADABLE, Fault
from seqloom.data.holdout import Holdout
from seqloom.data.layout import Layout, read_layout
from seqloom.data.lines import Advance, ignore, read_blocks
from seqloom.data.parallel import read_parallel, split_words
from seqloom.data.parquet import read_parquet
from seqloom.data.places import find_files
from seqloom.data.tables import DelimitedRows, JsonLines, LabelFirst

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files of one format. Iterating gives examples and raises `DataError` at the first record that is unreadable."""

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

    def sides(self) -> tuple[list[list[str]], list[Fault]]:
        """The files to read: one list, or lists of files that correspond; and what is missing."""
        match self.section:
            case ParallelFiles() | TaggedFiles():
                named = [getattr(self.section, role) for role in self.roles()]
                sides, missing = zip(*(find_files(names, self.base) for names in named), strict=True)
                faults = [fault for some in missing for fault in some]
                for names, files in zip(named[1:], sides[1:], strict=True):
                    if not faults and len(files) != len(sides[0]):
                        message = f"{len(sides[0])} files on this side, {len(files)} on the other ({names[0]} …)"
                        faults = [Fault("unequal_files", sides[0][0], 0, message)]
                return list(sides), faults
            case section:
                files, faults = find_files(section.files, self.base)
                return [files], faults

    def roles(self) -> tuple[str, ...]:
        """What stands in files of its own."""
        match self.section:
            case ParallelFiles(alignment=alignment):
                return ("source", "target", "alignment") if alignment else ("source", "target")
            case _:
                return "words", "tags"

    def files(self) -> list[str]:
        """Every file of the corpus that is there."""
        return [file for side in self.sides()[0] for file in side]

    def chunks(self, advance: Advance = ignore) -> Iterator[Chunk]:
        """All records with all faults; nothing is raised."""
        sides, faults = self.sides()
        if faults:
            yield Chunk(faults[0].path, [], {}, faults)
        if any(fault.kind == "unequal_files" for fault in faults):
            return
        for files in zip(*sides, strict=False):
            for chunk in self.read(files, advance):
                yield self.holdout.select(chunk) if self.holdout else chunk

    def __iter__(self) -> Iterator[Example]:
        for chunk in self.chunks():
            unreadable = [fault for fault in chunk.faults if fault.kind in UNREADABLE]
            if unreadable:
                raise min(unreadable, key=lambda fault: fault.line).error()
            yield from chunk.examples()

    def layout(self) -> Layout | None:
        """How records stand in a text file; None where a record is a line, or a row of a binary table."""
        match self.section:
            case TextFiles() | ParallelFiles() | TaggedFiles() | Keyed(format="parquet"):
                return None
            case Delimited(format=format, header=header):
                columns = named_columns(self.section)
                return DelimitedRows(columns, csv=format == "csv", header=header, numbers=self.numbers)
            case Keyed():
                return JsonLines(named_columns(self.section), numbers=self.numbers)
            case LabelFirstFiles():
                return LabelFirst(numbers=self.numbers)
            case ConllFiles(words=words, tags=tags):
                return ConllColumns(words, tags)
            case ConlluFiles(words=form, tags=column):
                return ConlluRows(form, column)
            case _:
                assert_never(self.section)

    def read(self, files: tuple[str, ...], advance: Advance = ignore) -> Iterator[Chunk]:
        """The records of one file, or of one file of each side, before any are held out."""
        path = files[0]
        if layout := self.layout():
            return read_layout(layout, path, read_blocks(path, self.max_line, advance))
        match self.section:
            case ParallelFiles():
                chunks = read_parallel(dict(zip(self.roles(), files, strict=True)), self.max_line, advance)
                return map(check_alignments, chunks) if len(files) == 3 else chunks
            case TaggedFiles():
                paths = dict(zip(self.roles(), files, strict=True))
                return map(split_words, read_parallel(paths, self.max_line, advance))
            case Keyed():
                return read_parquet(path, named_columns(self.section), numbers=self.numbers)
            case _:
                return _read_text(path, self.max_line, advance)


def _read_text(path: str, max_line: int, advance: Advance) -> Iterator[Chunk]:
    for block in read_blocks(path, max_line, advance):
        lines = range(block.first, block.first + len(block.lines))
        yield Chunk(path, lines, {"text": block.lines}, block.faults)


def open_split(data: Data, split: Split, base: Path) -> tuple[Corpus, ...]:
    """The corpora of a split; without a validation split, `valid_fraction` of the training records make one."""
    numbers = isinstance(data, LabelledData) and data.labels == "numbers"
    sections: tuple[CorpusSection, ...] = getattr(data, split)
    divided = data.valid_fraction > 0.0 and split != "test"
    if divided:
        sections = data.train
    return tuple(
        Corpus(
            section,
            base,
            data.max_line_bytes,
            numbers,
            Holdout(data.valid_fraction, split == "valid", isinstance(section, TextFiles)) if divided else None,
        )
        for section in sections
    )
