r"""The lines of a text file: UTF-8, gzip by its name, and only `\n` ends a line."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from seqloom.errors import DataError


def read_lines(path: Path) -> Iterator[str]:
    """Stream the lines of a file, without their line ends."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decode_lines(file, str(path))  # type: ignore[arg-type]  # GzipFile is a binary stream too
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def decode_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Stream the lines of an open file; `name` stands in errors."""
    for number, line in enumerate(file, start=1):
        try:
            yield line.removesuffix(b"\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}:{number}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not UTF-8;"
                " convert the file, for example: iconv -f LATIN1 -t UTF-8"
            ) from None
