"""The formats of results: lines of text, lines of JSON, a NumPy array, a Parquet table."""

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from seqloom.errors import DataError
from seqloom.predict.bulk import Failure, LineResult
from seqloom.predict.results import Vector, as_plain

_BREAK = re.compile(r"\r?\n")


class Format(ABC):
    """Turns windows of results into bytes, which are appended to a file."""

    head = b""
    """What a file starts with."""

    @abstractmethod
    def write(self, first: int, results: Sequence[LineResult]) -> bytes:
        """The bytes of a window whose first line has the number `first`."""

    def amend(self, file: BinaryIO, lines: int) -> None:  # noqa: B027 - most formats have nothing to amend
        """Correct the head for a file of so many lines."""

    def finish(self, body: Path, path: Path) -> None:
        """Turn the file that was written into the output file."""
        if body != path:
            body.rename(path)


class TextFormat(Format):
    """One line per result; a line break inside a result becomes a space, and a failure `[failed: KIND]`."""

    def __init__(self, show: Callable[[Any], str]) -> None:
        self._show = show

    def write(self, first: int, results: Sequence[LineResult]) -> bytes:
        """One line per result."""
        lines = (f"[failed: {o.kind}]" if isinstance(o, Failure) else self._show(o) for o in results)
        return "".join(flatten(line) + "\n" for line in lines).encode()


class JsonFormat(Format):
    """One object per line: the number of the line and the fields of its result, or `error` and `message`."""

    def write(self, first: int, results: Sequence[LineResult]) -> bytes:
        """One line per result."""
        rows = (json.dumps(_row(number, result), ensure_ascii=False) for number, result in enumerate(results, first))
        return "".join(row + "\n" for row in rows).encode()


class NpyFormat(Format):
    """A float32 array with one row per line, NaN for a failure. The head holds the number of rows, which grows."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        """`shape` is that of a row: the width of a vector or, with all layers, their number and that width."""
        self._shape = shape
        self.head = self._make_head(0)

    def write(self, first: int, results: Sequence[LineResult]) -> bytes:
        """One row per result."""
        rows = np.full((len(results), *self._shape), np.nan, np.float32)
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, Vector):
                row[:] = result.vector
        return rows.astype("<f4").tobytes()

    def amend(self, file: BinaryIO, lines: int) -> None:
        """Write the head again, with the number of rows."""
        file.seek(0)
        file.write(self._make_head(lines))
        file.seek(0, os.SEEK_END)

    def _make_head(self, lines: int) -> bytes:
        # numpy.lib.format, version 1.0: spaces fill the head up to 128 bytes.
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(lines, *self._shape)}, }}"
        return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"


class ParquetFormat(Format):
    """A table with one row per line. Parquet files cannot grow, so windows are first written as an Arrow stream."""

    def __init__(self, level: str, *, all_layers: bool = False) -> None:
        try:
            pa = import_module("pyarrow")
        except ImportError:
            raise DataError("Parquet needs pyarrow: pip install 'seqloom[parquet]'") from None
        vector = pa.list_(pa.float32())
        vectors = pa.list_(vector)
        tokens = [
            ("tokens", pa.list_(pa.string())),
            ("offsets", pa.list_(pa.list_(pa.int64()))),
            ("vectors", pa.list_(vectors) if all_layers else vectors),
        ]
        fields = [("vector", vectors if all_layers else vector)] if level == "text" else tokens
        self._schema = pa.schema([("line", pa.int64()), ("error", pa.string()), ("pieces", pa.int64()), *fields])
        self._batch: Any = pa.RecordBatch
        self.head = self._schema.serialize().to_pybytes()

    def write(self, first: int, results: Sequence[LineResult]) -> bytes:
        """A record batch."""
        rows = [_row(number, result) for number, result in enumerate(results, first)]
        written: bytes = self._batch.from_pylist(rows, schema=self._schema).serialize().to_pybytes()
        return written

    def finish(self, body: Path, path: Path) -> None:
        """Turn the stream into a table."""
        pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        partial = body.with_name(body.name + ".table")
        with pa.OSFile(str(body)) as file, parquet.ParquetWriter(partial, self._schema) as writer:
            for batch in pa.ipc.open_stream(file):
                writer.write_batch(batch)
        partial.rename(path)
        body.unlink()


def flatten(text: str) -> str:
    """A text on one line."""
    return _BREAK.sub(" ", text)


def _row(number: int, result: LineResult) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"line": number, "error": result.kind, "message": result.message}
    return {"line": number, **as_plain(result)}
