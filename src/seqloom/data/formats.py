"""What a data format is: which lines of a file make a record, and what they say.

To add a format, write its section in `config/data.py`, a subclass of `Format` in a file of `data/`, and one line in
`FORMATS` in `corpus.py`. Text files need only `parse` and, where a record is more than a line, `split`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from seqloom.config.data import Table
from seqloom.data.examples import BadRecord, Chunk, Fault, Values
from seqloom.data.files import Advance, ignore, read_blocks

Line = tuple[int, str]
"""A line and its number, from 1."""
Record = dict[str, str | tuple[str, ...]]

ROWS = 4096
"""Records in a chunk."""


class Format:
    """Reads one file, or one file of each side; made anew for each of them, for it may remember a header."""

    roles: tuple[str, ...]
    """The keys of a record."""
    running_text: ClassVar[bool] = False
    """Whether the order of the records matters: a validation split then takes consecutive lines."""
    one_line: ClassVar[bool] = False
    """Whether each line is a record, whatever it says; a line that is too long can then be emptied."""
    escapes: ClassVar[bool] = False
    """Whether lines are JSON, in which characters may be written as escapes."""

    def __init__(self, section: Any, *, numbers: bool = False) -> None:
        """From the section of the configuration; `numbers` says whether labels are numbers."""
        self.section, self.numbers = section, numbers

    def read(self, paths: Mapping[str, str], max_line: int, advance: Advance = ignore) -> Iterator[Chunk]:
        """The records of a file, chunk by chunk; `paths` has the file of each side of the section."""
        (path,) = paths.values()
        faults: list[Fault] = []

        def numbered() -> Iterator[Line]:
            for block in read_blocks(path, max_line, advance):
                faults.extend(block.faults)
                yield from enumerate(block.lines, start=block.first)

        return self.collect(path, self.split(numbered()), faults)

    def collect(self, path: str, groups: Iterator[list[Any]], faults: list[Fault]) -> Iterator[Chunk]:
        """Parse records and put them together in chunks; what yields the groups may add to the faults."""
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
                faults.append(bad.in_file(path))
            if len(starts) == ROWS or len(faults) >= ROWS or group is None:
                yield Chunk(path, starts, columns, faults.copy())
                starts, columns = [], {role: [] for role in self.roles}
                faults.clear()
            if group is None:
                return

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        """The lines of each record; raises `BadRecord` where the rest of the file cannot be understood."""
        for line in lines:
            yield [line]

    def parse(self, lines: list[Line]) -> Record:
        """The values of a record by role; raises `BadRecord` where this record cannot be understood."""
        raise NotImplementedError

    @classmethod
    def as_json(cls, section: Any) -> Table | None:
        """For a binary format: the section of the same records as JSON lines, with the roles as keys."""
        return None


class TextLines(Format):
    """Plain text: each line is a record."""

    roles = ("text",)
    running_text = one_line = True

    def read(self, paths: Mapping[str, str], max_line: int, advance: Advance = ignore) -> Iterator[Chunk]:
        """Block by block, as fast as lines are read."""
        (path,) = paths.values()
        for block in read_blocks(path, max_line, advance):
            columns: dict[str, Values] = {"text": block.lines}
            yield Chunk(path, range(block.first, block.first + len(block.lines)), columns, block.faults)
