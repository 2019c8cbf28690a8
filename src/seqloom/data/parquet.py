"""Parquet tables, by way of the optional library pyarrow; the `line` of a record is its row, from 1."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from seqloom.config.data import Column
from seqloom.data.chunk import Chunk, Values
from seqloom.data.fault import BadRecord, Fault
from seqloom.data.layout import ROWS
from seqloom.data.tables import check_counts, read_value


def read_parquet(path: str, columns: Mapping[str, Column], *, numbers: bool) -> Iterator[Chunk]:
    """The columns asked for, in batches of rows."""
    roles = {role: str(column) for role, column in columns.items()}
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        message = "Parquet needs the library pyarrow; install it: pip install 'seqloom[parquet]'"
        yield _fault(path, roles, "missing_extra", message)
        return
    try:
        with parquet.ParquetFile(path) as table:
            names = table.schema_arrow.names
            if missing := [key for key in roles.values() if key not in names]:
                message = f'no column is named "{missing[0]}"; the table has: {", ".join(names)[:200]}'
                yield _fault(path, roles, "unknown_column", message)
                return
            first = 1
            for batch in table.iter_batches(batch_size=ROWS, columns=list(roles.values())):
                cells = {role: batch.column(key).to_pylist() for role, key in roles.items()}
                yield _read_rows(path, first, batch.num_rows, cells, numbers)
                first += batch.num_rows
    except (pyarrow.ArrowException, OSError):
        yield _fault(path, roles, "unreadable_file", "cannot be read as Parquet; is it whole?")


def _read_rows(path: str, first: int, rows: int, cells: Mapping[str, list[Any]], numbers: bool) -> Chunk:
    lines: list[int] = []
    columns: dict[str, list[Any]] = {role: [] for role in cells}
    faults: list[Fault] = []
    for row in range(rows):
        try:
            record = {role: read_value(column[row], role, first + row, numbers) for role, column in cells.items()}
            check_counts(record, first + row)
        except BadRecord as bad:
            faults.append(bad.in_file(path))
            continue
        lines.append(first + row)
        for role, value in record.items():
            columns[role].append(value)
    return Chunk(path, lines, columns, faults)


def _fault(path: str, roles: Mapping[str, str], kind: str, message: str) -> Chunk:
    empty: dict[str, Values] = {role: [] for role in roles}
    return Chunk(path, [], empty, [Fault(kind, path, 0, message)])
