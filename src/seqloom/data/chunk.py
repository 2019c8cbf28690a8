"""Consecutive records of one file, by column: what readers produce and everything fast works on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import cast

from seqloom.data.example import Example
from seqloom.data.fault import Fault

ANSWERS = frozenset({"target", "label", "tags", "alignment"})
"""The roles a model learns to give; the others are its input."""

Values = list[str] | list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records with the line each starts at; `columns` is keyed by role as `Example.values` is."""

    path: str
    lines: Sequence[int]
    columns: dict[str, Values]
    faults: list[Fault] = field(default_factory=list)
    paths: Mapping[str, str] = field(default_factory=dict)
    """The file of a role whose texts stand in a file of their own."""

    def __len__(self) -> int:
        return len(self.lines)

    def examples(self) -> Iterator[Example]:
        """The records one by one."""
        roles = tuple(self.columns)
        for line, row in zip(self.lines, zip(*self.columns.values(), strict=True), strict=True):
            yield Example(dict(zip(roles, row, strict=True)), self.path, line)

    def select(self, keep: Sequence[bool]) -> "Chunk":
        """The records whose entry in `keep` is true; faults stay, for they concern the file."""
        columns = {role: list(compress(column, keep)) for role, column in self.columns.items()}
        return Chunk(
            self.path, list(compress(self.lines, keep)), cast("dict[str, Values]", columns), self.faults, self.paths
        )
