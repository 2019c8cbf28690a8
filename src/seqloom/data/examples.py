"""What readers produce: records with their file and line, and the faults found in them.

Readers do not decide what a fault means. Reading for training raises the first one that makes a record unreadable;
the doctor collects them all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

from seqloom.config.checks import Checks
from seqloom.errors import DataError

ANSWERS = frozenset({"target", "label", "tags", "alignment"})
"""The roles a model learns to predict; the others are its input."""

UNREADABLE: dict[str, str] = {
    "missing_file": "No file has this name, or no file matches the pattern.",
    "unreadable_file": "The file cannot be opened or read.",
    "truncated_file": "Compressed data that ends too early or is damaged.",
    "not_text": "A file that is not UTF-8 text at all: UTF-16, an archive, a document.",
    "empty_file": "A file without a single byte.",
    "no_records": "A split without a single record that is not blank.",
    "endless_line": "A line longer than `data.max_line_bytes`.",
    "bad_utf8": "Bytes that are not UTF-8.",
    "bad_surrogate": "Half of a surrogate pair, written as a JSON escape. It is not a character.",
    "unequal_files": "One side has more files than the other.",
    "unequal_lines": "Files that should correspond line by line have different numbers of lines.",
    "unknown_column": "A column that the header, or the table, does not name.",
    "missing_column": "A row that is too short to have a column, or an object that does not have a key.",
    "ragged_row": "A row with more cells than the rows before it.",
    "bad_row": "A row that breaks the rules of its format.",
    "bad_value": "A value of the wrong kind: not a text, not a list, not a number.",
    "blank_label": "A record without a label.",
    "tag_count": "A sentence with more words than tags, or more tags than words.",
    "bad_alignment": "An alignment that is not written as `0-0 1-2`, or that names a word which does not exist.",
    "missing_extra": "A format that needs a library which is not installed.",
}
"""What makes a record or a file unreadable: always an error."""

KINDS: dict[str, str] = UNREADABLE | {name: str(field.description) for name, field in Checks.model_fields.items()}
"""Every kind of finding and what it means."""

Values = list[str] | list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault at one place; `count` says how many lines of the same block have it."""

    kind: str
    path: str
    line: int
    """Counted from 1; 0 is the file as a whole."""
    message: str
    count: int = 1

    @property
    def place(self) -> str:
        """`file:line`, or the file alone."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def error(self) -> DataError:
        """The fault as an exception."""
        return DataError(f"{self.place}: {self.message}")


class BadRecord(Exception):  # noqa: N818 - control flow inside the readers, never shown
    """A record that cannot be read; the reader adds the file."""

    def __init__(self, kind: str, line: int, message: str) -> None:
        super().__init__(message)
        self.kind, self.line = kind, line


def raise_unreadable(faults: Iterable[Fault]) -> None:
    """Raise `DataError` for the first fault that makes a record unreadable, if any."""
    unreadable = [fault for fault in faults if fault.kind in UNREADABLE]
    if unreadable:
        raise min(unreadable, key=lambda fault: fault.line).error()


@dataclass(frozen=True, slots=True)
class Example:
    """A record as text: `values` is keyed by role.

    Plain text has `text`; parallel text `source` and `target`; labelled text `text`, for pairs also `second`, and
    `label`; tagged text `words` and `tags`, tuples of equal length.
    """

    values: Mapping[str, str | tuple[str, ...]]
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one file, by column, with the line at which each record starts."""

    path: str
    lines: Sequence[int]
    columns: dict[str, Values]
    """Keyed by role, as `Example.values` is."""
    faults: list[Fault] = field(default_factory=list)
    paths: Mapping[str, str] = field(default_factory=dict)
    """The file of each role, where every role has its own file."""

    def __len__(self) -> int:
        return len(self.lines)

    def examples(self) -> Iterator[Example]:
        """Iterate over the records."""
        roles = tuple(self.columns)
        for line, row in zip(self.lines, zip(*self.columns.values(), strict=True), strict=True):
            yield Example(dict(zip(roles, row, strict=True)), self.path, line)

    def select(self, keep: Sequence[bool]) -> "Chunk":
        """Return the records whose entry in `keep` is true; all faults stay, because they concern the file."""
        columns: dict[str, Any] = {role: list(compress(column, keep)) for role, column in self.columns.items()}
        return replace(self, lines=list(compress(self.lines, keep)), columns=columns)
