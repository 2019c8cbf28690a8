"""What a data format is: which lines of a file make a record, and how to parse them. Lines of text, alone or parallel.

To add a format, write its section in `config/data.py`, a subclass of `Format` in a file of `data/`, and one line in
`FORMATS` in `corpus.py`. Text files need only `parse` and, where a record is more than a line, `split`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from seqloom.config.data import Table
from seqloom.data.examples import UNREADABLE, BadRecord, Chunk, Fault, Values
from seqloom.data.files import Advance, ignore, read_blocks

Line = tuple[int, str]
"""A line and its number, from 1."""
Record = dict[str, str | tuple[str, ...]]

ROWS = 4096
"""Records in a chunk."""


class Format:
    """Reads one file, or one file of each side. Each file gets a new object, which may remember a header."""

    roles: tuple[str, ...]
    """The keys of a record."""
    running_text: ClassVar[bool] = False
    """Whether the order of the records matters: a validation split then takes consecutive lines."""
    one_line: ClassVar[bool] = False
    """Whether every line is a record; a line that is too long can then be replaced by an empty one."""
    escapes: ClassVar[bool] = False
    """Whether lines are JSON, in which characters may be written as escapes."""

    def __init__(self, section: Any, *, numbers: bool = False) -> None:
        """`section` is the corpus in the configuration; `numbers` says whether labels are numbers."""
        self.section, self.numbers = section, numbers

    def read(self, paths: Mapping[str, str], max_line: int, advance: Advance = ignore) -> Iterator[Chunk]:
        """Read the records of a file, chunk by chunk; `paths` has the file of each side of the section."""
        (path,) = paths.values()
        faults: list[Fault] = []

        def numbered() -> Iterator[Line]:
            for block in read_blocks(path, max_line, advance):
                faults.extend(block.faults)
                yield from enumerate(block.lines, start=block.first)

        return self.collect(path, self.split(numbered()), faults)

    def collect(self, path: str, groups: Iterator[list[Any]], faults: list[Fault]) -> Iterator[Chunk]:
        """Parse groups of lines into chunks of records; the iterator of the groups may add to `faults`."""
        starts: list[int] = []
        columns: dict[str, Any] = {role: [] for role in self.roles}
        while True:
            group = None
            try:
                group = next(groups, None)
                if group is not None:
                    record = self.parse(group)
                    starts.append(group[0][0])
                    for role, column in columns.items():
                        column.append(record[role])
            except BadRecord as bad:
                faults.append(Fault(bad.kind, path, bad.line, str(bad)))
            if len(starts) == ROWS or len(faults) >= ROWS or group is None:
                yield Chunk(path, starts, columns, faults.copy())
                starts, columns = [], {role: [] for role in self.roles}
                faults.clear()
            if group is None:
                return

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        """Group the lines of each record; raises `BadRecord` where the rest of the file cannot be read."""
        for line in lines:
            yield [line]

    def parse(self, lines: list[Line]) -> Record:
        """Return the values of a record by role; raises `BadRecord` if it cannot be read."""
        raise NotImplementedError

    @classmethod
    def as_json(cls, section: Any) -> Table | None:
        """For a binary format: the section that describes the same records as JSON lines, with the roles as keys."""
        return None


class TextLines(Format):
    """Plain text: each line is a record."""

    roles = ("text",)
    running_text = one_line = True

    def read(self, paths: Mapping[str, str], max_line: int, advance: Advance = ignore) -> Iterator[Chunk]:
        """Make each block of lines a chunk, without work for each line."""
        (path,) = paths.values()
        for block in read_blocks(path, max_line, advance):
            columns: dict[str, Values] = {"text": block.lines}
            yield Chunk(path, range(block.first, block.first + len(block.lines)), columns, block.faults)


class ParallelLines(Format):
    """Files whose lines correspond, one for each side of the section; the names of the sides are the roles."""

    one_line = True

    def __init__(self, section: Any, *, numbers: bool = False) -> None:
        super().__init__(section, numbers=numbers)
        self.roles = tuple(section.sides)

    def read(self, paths: Mapping[str, str], max_line: int, advance: Advance = ignore) -> Iterator[Chunk]:
        """Read records of one line from each file; unequal numbers of lines are a fault."""
        for chunk in _read_together(paths, max_line, advance):
            if "tags" in paths:
                yield _split_words(chunk)
            else:
                yield _check_alignments(chunk) if "alignment" in paths else chunk


class _Side:
    """The lines of one file that are not part of a record yet."""

    def __init__(self, path: str, max_line: int, advance: Advance) -> None:
        self.path = path
        self.blocks = read_blocks(path, max_line, advance)
        self.lines: list[str] = []
        self.count = 0
        self.broken = False

    def fill(self, faults: list[Fault]) -> bool:
        """Have at least one line ready; false at the end of the file."""
        while not self.lines:
            block = next(self.blocks, None)
            if block is None:
                return False
            faults += block.faults
            # If the whole file is at fault, comparing line counts would only repeat that.
            self.broken |= any(f.line == 0 and f.kind in UNREADABLE for f in block.faults)
            self.lines = block.lines
            self.count += len(block.lines)
        return True


def _read_together(paths: Mapping[str, str], max_line: int, advance: Advance) -> Iterator[Chunk]:
    sides = {role: _Side(path, max_line, advance) for role, path in paths.items()}
    leader, *others = sides.values()
    first = 1
    while True:
        faults: list[Fault] = []
        filled = [side.fill(faults) for side in sides.values()]
        if not all(filled):
            break
        size = min(len(side.lines) for side in sides.values())
        columns: dict[str, Values] = {role: side.lines[:size] for role, side in sides.items()}
        for side in sides.values():
            side.lines = side.lines[size:]
        yield Chunk(leader.path, range(first, first + size), columns, faults, paths)
        first += size
    for side in sides.values():
        while side.fill(faults):
            side.lines = []
    for number, side in enumerate(others):
        if side.count != leader.count and not any(one.broken for one in sides.values()):
            # Of two texts the fault is reported for the first; an alignment that differs from the texts is at fault.
            one, other = (side, leader) if number else (leader, side)
            message = f"the file has {one.count:,} lines, but {other.path} has {other.count:,}"
            faults.append(Fault("unequal_lines", one.path, min(one.count, other.count) + 1, message))
    yield Chunk(leader.path, [], {role: [] for role in sides}, faults, paths)


def split_at_spaces(line: str) -> list[str]:
    """Split a line at spaces; any other white space, such as a no-break space, is part of a word."""
    return [cell for cell in line.split(" ") if cell]


def describe_counts(words: int, tags: int) -> str:
    """The message about a sentence whose words and tags differ in number."""
    return f"the sentence has {words} words but {tags} tags"


def _split_words(chunk: Chunk) -> Chunk:
    """Lines of words and tags -> tuples of equal length; a sentence of unequal counts is a fault."""
    words, tags = ([tuple(split_at_spaces(str(line))) for line in chunk.columns[role]] for role in ("words", "tags"))
    faults = chunk.faults.copy()
    for line, w, t in zip(chunk.lines, words, tags, strict=True):
        if len(w) != len(t):
            faults.append(Fault("tag_count", chunk.path, line, describe_counts(len(w), len(t))))
    equal = [len(w) == len(t) for w, t in zip(words, tags, strict=True)]
    return replace(chunk, columns={"words": words, "tags": tags}, faults=faults).select(equal)


def read_alignment(text: str) -> list[tuple[int, int]]:
    """The pairs of (source word, target word) of an alignment such as `0-0 1-2 2-1`, counted from 0."""
    pairs = []
    for item in text.split():
        source, dash, target = item.partition("-")
        if not (dash and source.isdecimal() and target.isdecimal()):
            raise ValueError(f'"{item[:40]}" is not a pair of words such as 0-2')
        pairs.append((int(source), int(target)))
    return pairs


def _check_alignments(chunk: Chunk) -> Chunk:
    """Leave out records whose alignment cannot be read or names a word that does not exist; each is a fault."""
    rows = zip(*(chunk.columns[role] for role in ("source", "target", "alignment")), strict=True)
    problems = [_check_alignment(*map(str, row)) for row in rows]
    faults = [
        Fault("bad_alignment", chunk.paths["alignment"], line, problem)
        for line, problem in zip(chunk.lines, problems, strict=True)
        if problem
    ]
    return replace(chunk, faults=[*chunk.faults, *faults]).select([not problem for problem in problems])


def _check_alignment(source: str, target: str, alignment: str) -> str:
    try:
        pairs = read_alignment(alignment)
    except ValueError as error:
        return str(error)
    for index, (side, text) in enumerate((("source", source), ("target", target))):
        last, count = max((pair[index] for pair in pairs), default=-1), len(text.split())
        if last >= count:
            return f"the alignment names word {last} of the {side}, which has {count} words, counted from 0"
    return ""
