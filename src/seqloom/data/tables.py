"""Tables: tab- and comma-separated rows, JSON objects, lines of `label text`, and Parquet by pyarrow."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import chain, islice
from typing import Any

from seqloom.config.data import Delimited, Keyed
from seqloom.data.examples import BadRecord, Chunk
from seqloom.data.files import Advance, ignore
from seqloom.data.formats import ROWS, Format, Line, Record, describe_counts

_QUOTED_LIMIT = 1 << 20
"""A quoted cell that continues over more characters than this counts as never closed."""


_FIRST_ROWS = 20
"""Lines that show whether semicolons separate cells."""


def check_not_blank(lines: list[Line]) -> int:
    """Refuse a blank record; returns the number of its first line."""
    number = lines[0][0]
    if not any(text.strip() for _, text in lines):
        raise BadRecord("blank", number, "the line is blank")
    return number


_LARGEST = 1.8e19
"""The largest quantity whose square, which is the loss, is a number of 32 bits."""


class TabSeparated(Format):
    """Rows of cells separated by tabs; quotes are text."""

    def __init__(self, section: Delimited, *, numbers: bool = False) -> None:
        super().__init__(section, numbers=numbers)
        self.columns = section.named_columns
        self.roles = tuple(self.columns)
        named = any(isinstance(column, str) for column in self.columns.values())
        self.header = named if section.header is None else section.header
        self.width = 0
        self.places = {role: column - 1 for role, column in self.columns.items() if isinstance(column, int)}

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        """Group the lines of each row, after the header."""
        groups = self._split_rows(lines)
        if self.header and (first := next(groups, None)) is not None:
            self._read_header(first)
        yield from groups

    def parse(self, lines: list[Line]) -> Record:
        """Return the chosen cells."""
        number = check_not_blank(lines)
        cells = self._cells(lines)
        self.width = self.width or len(cells)
        record: Record = {}
        for role, place in self.places.items():
            if place >= len(cells):
                message = f"column {place + 1} ({role}) is missing; the row ends with column {len(cells)}"
                raise BadRecord("missing_column", number, message)
            record[role] = read_label(cells[place], number, self.numbers) if role == "label" else cells[place]
        if len(cells) != self.width:
            message = f"the row has {len(cells)} cells, but the rows before it have {self.width}"
            raise BadRecord("ragged_row", number, message)
        return record

    def _split_rows(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        return super().split(lines)

    def _cells(self, lines: list[Line]) -> list[str]:
        return lines[0][1].split("\t")

    def _read_header(self, lines: list[Line]) -> None:
        names = [name.strip() for name in self._cells(lines)]
        self.width = len(names)
        for role, column in self.columns.items():
            if isinstance(column, str):
                if column not in names:
                    message = f'no column is named "{column}" ({role}); the header has: {", ".join(names)[:200]}'
                    raise BadRecord("unknown_column", lines[0][0], message)
                self.places[role] = names.index(column)
        self.places = {role: self.places[role] for role in self.roles}


class CommaSeparated(TabSeparated):
    """Rows of cells separated by commas and quoted as in RFC 4180, so a cell may contain line ends.

    Where commas are decimal points, spreadsheets write semicolons between cells. They are recognised in the first rows:
    the wanted columns exist if semicolons separate them and not if commas do, or else only semicolons make all rows
    equally long.
    """

    def __init__(self, section: Delimited, *, numbers: bool = False) -> None:
        super().__init__(section, numbers=numbers)
        self.separator: str = section.separator or ","

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        """Group the lines of each row, after the header."""
        source = iter(lines)
        begin = list(islice(source, 1))
        if self.section.separator is None and begin and ";" in begin[0][1]:
            if "," in begin[0][1]:
                begin += islice(source, _FIRST_ROWS - 1)
            self.separator = self._find_separator(begin)
        yield from super().split(chain(begin, source))

    def _find_separator(self, lines: list[Line]) -> str:
        lines = [line for line in lines if line[1].strip()]
        even = {}  # by separator, if it makes the wanted columns: whether it makes rows of one length
        for self.separator in ",;":
            rows: list[list[str]] = []
            with suppress(BadRecord):  # these lines may end inside a quoted cell
                rows.extend(self._try_cells(group) for group in self._split_rows(lines))
            names = [name.strip() for name in rows[0]] if rows else []
            if all(c in names if isinstance(c, str) else c <= len(names) for c in self.columns.values()):
                even[self.separator] = len({len(row) for row in rows}) == 1
        return next((separator for separator in even if even[separator]), next(iter(even), ","))

    def _try_cells(self, lines: list[Line]) -> list[str]:
        try:
            return self._cells(lines)
        except BadRecord:
            return []

    def _split_rows(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        source = iter(lines)
        for line in source:
            group = [line]
            if '"' in line[1] and _is_open(line[1], self.separator):
                _close_quote(group, source)
            yield group

    def _cells(self, lines: list[Line]) -> list[str]:
        if len(lines) == 1 and '"' not in lines[0][1]:
            return lines[0][1].split(self.separator)
        try:
            return split_cells("\n".join(text for _, text in lines), self.separator) or []
        except ValueError as error:
            raise BadRecord("bad_row", lines[0][0], f"not well-formed CSV: {error}") from None


_QUOTED = re.compile(r'"((?:[^"]|"")*+)"')


def split_cells(row: str, separator: str = ",") -> list[str] | None:
    """Split a CSV row into cells; None if a quoted cell is still open at the end."""
    cells: list[str] = []
    start = 0
    while True:
        if row.startswith('"', start):
            quoted = _QUOTED.match(row, start)
            if quoted is None:
                return None
            cells.append(quoted[1].replace('""', '"'))
            end = quoted.end()
            if end < len(row) and row[end] != separator:
                raise ValueError(f"{row[end : end + 20]!r} follows a closing quote; expected {separator!r}")
        else:
            end = row.find(separator, start) % (len(row) + 1)  # no separator: the end of the row
            cells.append(row[start:end])
            if "\n" in cells[-1]:
                raise ValueError("there is a quote inside a cell that is not quoted")
        if end == len(row):
            return cells
        start = end + 1


def _is_open(row: str, separator: str) -> bool:
    try:
        return split_cells(row, separator) is None
    except ValueError:  # reading the row will find what is wrong
        return False


def _close_quote(group: list[Line], source: Iterator[Line]) -> None:
    """Add lines up to the one that closes the quote: the first with an odd number of quotes."""
    size = 0
    for line in source:
        group.append(line)
        size += len(line[1])
        if line[1].count('"') % 2:
            return
        if size > _QUOTED_LIMIT:
            break
    raise BadRecord("bad_row", group[0][0], 'a quote (") opens here and is never closed; the rest cannot be read')


class JsonLines(Format):
    """One JSON object a line; the key `a.b` finds b inside a."""

    escapes = True

    def __init__(self, section: Keyed, *, numbers: bool = False) -> None:
        super().__init__(section, numbers=numbers)
        self.columns = {role: str(column) for role, column in section.named_columns.items()}
        self.roles = tuple(self.columns)

    def parse(self, lines: list[Line]) -> Record:
        """Return the chosen values."""
        number = check_not_blank(lines)
        try:
            item = json.loads(lines[0][1])
        except ValueError as error:
            raise BadRecord("bad_row", number, f"not JSON: {error}") from None
        except RecursionError:
            raise BadRecord("bad_row", number, "the JSON is nested too deeply") from None
        if not isinstance(item, dict):
            raise BadRecord("bad_row", number, f"expected an object {{...}}, found {type(item).__name__}")
        record: Record = {role: self._value(item, role, key, number) for role, key in self.columns.items()}
        check_counts(record, number)
        return record

    def _value(self, item: dict[str, Any], role: str, key: str, line: int) -> str | tuple[str, ...]:
        value: Any = item
        for step in [key] if key in item else key.split("."):
            if not isinstance(value, dict) or step not in value:
                message = f'no key "{key}" ({role}); the object has: {", ".join(map(str, item))[:200]}'
                raise BadRecord("missing_column", line, message)
            value = value[step]
        return read_value(value, role, line, self.numbers)


class LabelFirst(Format):
    """Lines of `label text`."""

    roles = ("text", "label")

    def parse(self, lines: list[Line]) -> Record:
        """Split the line at its first space."""
        number = check_not_blank(lines)
        label, space, text = lines[0][1].partition(" ")
        if not space:
            raise BadRecord("missing_column", number, f'no space after the label "{label[:40]}"; expected: label text')
        return {"text": text, "label": read_label(label, number, self.numbers)}


class ParquetTable(JsonLines):
    """A Parquet table; the `line` of a record is its row, from 1."""

    def read(self, paths: Mapping[str, str], max_line: int, advance: Advance = ignore) -> Iterator[Chunk]:
        """Read the chosen columns in batches of rows."""
        (path,) = paths.values()
        return self.collect(path, self._read_rows(path), [])

    def _read_rows(self, path: str) -> Iterator[list[tuple[int, dict[str, Any]]]]:
        try:
            pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        except ImportError:
            message = "Parquet needs the library pyarrow; install it: pip install 'seqloom[parquet]'"
            raise BadRecord("missing_extra", 0, message) from None
        try:
            with parquet.ParquetFile(path) as table:
                names = table.schema_arrow.names
                if missing := [key for key in self.columns.values() if key not in names]:
                    message = f'no column is named "{missing[0]}"; the table has: {", ".join(names)[:200]}'
                    raise BadRecord("unknown_column", 0, message)
                row = 0
                for batch in table.iter_batches(batch_size=ROWS, columns=list(self.columns.values())):
                    cells = {role: batch.column(key).to_pylist() for role, key in self.columns.items()}
                    for values in zip(*cells.values(), strict=True):
                        row += 1
                        yield [(row, dict(zip(cells, values, strict=True)))]
        except (pyarrow.ArrowException, OSError):
            message = "the file cannot be read as Parquet; is it complete?"
            raise BadRecord("unreadable_file", 0, message) from None

    def parse(self, lines: list[Any]) -> Record:
        """Return the values of a row."""
        row, cells = lines[0]
        record: Record = {role: read_value(value, role, row, self.numbers) for role, value in cells.items()}
        check_counts(record, row)
        return record

    @classmethod
    def as_json(cls, section: Keyed) -> Keyed:
        """Parquet tables have the keys of JSON lines."""
        columns = type(section.columns).model_validate({role: role for role in section.named_columns})  # type: ignore[attr-defined]
        return section.model_copy(update={"format": "jsonl", "columns": columns})


def read_value(value: Any, role: str, line: int, numbers: bool) -> str | tuple[str, ...]:
    """Check a typed value: a text, a list of texts, or a label, which may be a number."""
    if role in ("words", "tags"):
        if not isinstance(value, list):
            raise BadRecord("bad_value", line, f"{role}: expected a list, found {_name(value)}")
        return tuple(_read_text(v if role == "words" else _plain(v), f"{role}[{i}]", line) for i, v in enumerate(value))
    if role == "label":
        return read_label(_read_text(_plain(value), role, line), line, numbers)
    return _read_text(value, role, line)


def check_counts(record: Record, line: int) -> None:
    """Refuse a record with more words than tags, or fewer."""
    if "tags" in record and len(record["words"]) != len(record["tags"]):
        raise BadRecord("tag_count", line, describe_counts(len(record["words"]), len(record["tags"])))


def _plain(value: Any) -> Any:
    """A number or a truth value as text; any other value as it is."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def _read_text(value: Any, role: str, line: int) -> str:
    if not isinstance(value, str):
        raise BadRecord("bad_value", line, f"{role}: expected a text, found {_name(value)}")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise BadRecord("bad_surrogate", line, f"{role}: has half of a surrogate pair, which is not a character")
    return value


def read_label(text: str, line: int, numbers: bool) -> str:
    """Strip a label; where labels are numbers, refuse any other."""
    label = text.strip()
    if not label:
        raise BadRecord("blank_label", line, "the label is blank")
    if numbers:
        try:
            value = float(label)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadRecord("bad_value", line, f'the label "{label[:40]}" is not a number')
        if abs(value) > _LARGEST:
            raise BadRecord(
                "bad_value", line, f'the label "{label[:40]}" is beyond ±{_LARGEST:.4g}; give a smaller unit'
            )
    return label


def _name(value: Any) -> str:
    return "null" if value is None else type(value).__name__
