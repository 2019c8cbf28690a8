"""The shape of a record in a text file: which lines belong together, and what they say."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from seqloom.data.chunk import Chunk, Values
from seqloom.data.fault import BadRecord, Fault
from seqloom.data.lines import Block

Line = tuple[int, str]
"""A line and its number, from 1."""
Record = dict[str, str | tuple[str, ...]]

ROWS = 4096
"""Records in a chunk."""


class Layout(Protocol):
    """One file of records: made anew for each file, for it may remember the header."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The keys of a record."""
        ...

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        """The lines of each record; raises `BadRecord` where the rest of the file cannot be understood."""
        ...

    def parse(self, lines: list[Line]) -> Record:
        """The values of a record by role; raises `BadRecord` where this record cannot be understood."""
        ...


def split_singly(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Each line is a record."""
    for line in lines:
        yield [line]


def read_layout(layout: Layout, path: str, blocks: Iterable[Block]) -> Iterator[Chunk]:
    """The records of a file, chunk by chunk."""
    faults: list[Fault] = []

    def numbered() -> Iterator[Line]:
        for block in blocks:
            faults.extend(block.faults)
            yield from enumerate(block.lines, start=block.first)

    starts: list[int] = []
    columns: dict[str, list[str | tuple[str, ...]]] = {role: [] for role in layout.roles}
    groups = layout.split(numbered())
    while True:
        try:
            group = next(groups, None)
        except BadRecord as bad:
            faults.append(bad.in_file(path))
            group = None
        if group is not None:
            try:
                record = layout.parse(group)
            except BadRecord as bad:
                faults.append(bad.in_file(path))
            else:
                starts.append(group[0][0])
                for role, column in columns.items():
                    column.append(record[role])
        if len(starts) == ROWS or len(faults) >= ROWS or group is None:
            yield Chunk(path, starts, _freeze(columns), faults.copy())
            starts, columns = [], {role: [] for role in layout.roles}
            faults.clear()
        if group is None:
            return


def _freeze(columns: dict[str, list[str | tuple[str, ...]]]) -> dict[str, Values]:
    return columns  # type: ignore[return-value]  # every column holds one kind of value
