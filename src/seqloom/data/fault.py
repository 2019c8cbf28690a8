"""Something wrong at a place in a file.

Readers do not decide what a fault means. Reading for training raises the first one that makes a record unreadable;
the doctor collects them all.
"""

from dataclasses import dataclass

from seqloom.config.checks import Checks
from seqloom.errors import DataError

UNREADABLE: dict[str, str] = {
    "missing_file": "No file has the name, or no file matches the pattern.",
    "unreadable_file": "The file cannot be opened or read.",
    "truncated_file": "Compressed data that ends too early or is damaged.",
    "not_text": "A file that is not UTF-8 text at all: UTF-16, an archive, a document.",
    "empty_file": "A file without a single byte.",
    "no_records": "A split without a single record that is not blank.",
    "endless_line": "A line longer than `data.max_line_bytes`.",
    "bad_utf8": "Bytes that are not UTF-8.",
    "bad_surrogate": "Half of a surrogate pair, which is no character, written as a JSON escape.",
    "unequal_files": "Not as many files on one side as on the other.",
    "unequal_lines": "Files that should correspond line by line have unequal numbers of lines.",
    "unknown_column": "A column that the header, or the table, does not name.",
    "missing_column": "A row that is too short to have a column, or an object that does not have a key.",
    "ragged_row": "A row with more cells than the rows before it.",
    "bad_row": "A row that breaks the rules of its format.",
    "bad_value": "A value of the wrong kind: not a text, not a list, not a number.",
    "blank_label": "A record without a label.",
    "tag_count": "Not as many tags as words.",
    "bad_alignment": "An alignment that is not written as `0-0 1-2`, or that names a word which is not there.",
    "missing_extra": "A format that needs a library which is not installed.",
}
"""What makes a record or a file unreadable: always an error."""

KINDS: dict[str, str] = UNREADABLE | {name: str(field.description) for name, field in Checks.model_fields.items()}
"""Every kind of finding and what it means."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault at one place; `count` says how many more like it were found in the same stretch."""

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
    """A record that cannot be read; its reader adds the file."""

    def __init__(self, kind: str, line: int, message: str) -> None:
        super().__init__(message)
        self.kind, self.line, self.message = kind, line, message

    def in_file(self, path: str) -> Fault:
        """The fault, now with its file."""
        return Fault(self.kind, path, self.line, self.message)
