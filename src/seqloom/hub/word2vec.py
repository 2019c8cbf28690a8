r"""Word vectors in the formats of other programs.

| format            | file                                                                                  |
|-------------------|---------------------------------------------------------------------------------------|
| `word2vec`        | text: a line `count dim`, then a line `word x₁ … x_d` for each word (also fastText's `.vec`) |
| `word2vec-binary` | a line `count dim`, then for each word: its UTF-8 bytes, a space, d little-endian float32 |
| `glove`           | text without the first line                                                            |

The format of a file is recognised by its contents, and so is gzip. In text the last d columns are the numbers, so
words with spaces in them, as in some GloVe files, are read whole. A header is refused if a file of that size cannot
hold what it promises.
"""

import gzip
import os
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch

from seqloom.data.files import read_lines
from seqloom.errors import DataError
from seqloom.models.word_vectors import WordVectors

Format = Literal["word2vec", "word2vec-binary", "glove"]

_PIECE = 1 << 20
_MAX_LINE = 1 << 24
_MAX_WORD = 1 << 16
_ROWS = 1 << 14
_MAX_INFLATION = 1032
"""Deflate expands one byte to at most this many."""
_HEADER = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")
_ENDS_IN_DECIMAL = re.compile(r" [+-]?\d*\.\d+(e[+-]?\d+)?$", re.IGNORECASE)
_ENDS_IN_NUMBER = re.compile(r" [+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$", re.IGNORECASE)


class _Header(NamedTuple):
    words: int
    dim: int


def read_word_vectors(path: str | Path) -> WordVectors:
    """The vectors of a file in any of the formats, plain or gzip."""
    path = str(path)
    with _opened(path) as file:
        first = file.readline(256)
        numbers = _HEADER.fullmatch(first)
        header = _Header(*map(int, numbers.groups())) if numbers else None
        if header and not _is_text(file.read(min(_PIECE, 1024 + 32 * header.dim)), header.dim):
            file.seek(len(first))
            _check_header(header, path, bytes_per_word=2 + 4 * header.dim)
            return _read_binary(file, path, header)
    if header:
        _check_header(header, path, bytes_per_word=2 + 2 * header.dim)
    return _read_text(path, header)


def write_word_vectors(vectors: WordVectors, path: str | Path, format: Format) -> None:
    """Write a file, compressed if its name ends in .gz; it gets its name only when it is complete."""
    _refuse_unwritable(vectors.words, format)
    rows = vectors.vectors.detach().to("cpu", torch.float32).numpy()
    path, part = Path(path), Path(f"{path}.part")
    try:
        with part.open("wb") as stored:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=stored, mtime=0) as packed:
                    packed.writelines(_encode(vectors.words, rows, format))
            else:
                stored.writelines(_encode(vectors.words, rows, format))
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error


def _encode(words: Sequence[str], rows: npt.NDArray[np.float32], format: Format) -> Iterator[bytes]:
    count, dim = rows.shape
    if format != "glove":
        yield b"%d %d\n" % (count, dim)
    line = " ".join(["%s"] + ["%.9g"] * dim) + "\n"  # nine digits restore every float32 exactly
    for word, row in zip(words, rows, strict=True):
        if format == "word2vec-binary":
            yield word.encode() + b" " + row.astype("<f4").tobytes() + b"\n"
        else:
            yield (line % (word, *row.tolist())).encode()


def _refuse_unwritable(words: Sequence[str], format: Format) -> None:
    """Refuse words that a reader of the format would not read back as they are."""
    for word in words:
        if not word or word != word.strip(" ") or "\n" in word:
            reason = "it is empty, has a line end in it, or begins or ends with a space"
        elif format == "glove" and _ENDS_IN_NUMBER.search(word):
            reason = "its last part would be taken for the first number"
        elif format != "glove" and " " in word:
            reason = "it has a space in it, which ends a word in this format; replace it, for instance by _"
        else:
            continue
        raise DataError(f"the word {word!r} cannot be written as {format}: {reason}")


def _read_text(path: str, header: _Header | None) -> WordVectors:
    line_of: dict[str, int] = {}
    numbers = array("f")
    dim = header.dim if header else 0
    for number, line in _lines(path):
        if header and number == 1:
            continue
        if not dim:
            dim = _guess_dim(path)
        word, *columns = line.rsplit(" ", dim)
        if len(columns) != dim or not word or _ENDS_IN_DECIMAL.search(word):
            raise DataError(
                f"{path}:{number}: expected a word and {dim} numbers with single spaces between them, "
                f"found {len(line.split(' '))} columns; the line is damaged, or the file has another format"
            )
        if word in line_of:
            raise DataError(f'{path}:{number}: the word "{word}" is in line {line_of[word]} already; remove one')
        if header and len(line_of) == header.words:
            raise DataError(f"{path}:{number}: the first line promises {header.words} words, but this is one more")
        line_of[word] = number
        try:
            numbers.extend(map(float, columns))
        except ValueError as error:
            raise DataError(f"{path}:{number}: one of the last {dim} columns is not a number: {error}") from error
    if not line_of:
        raise DataError(f"{path}: has no word vectors, only blank lines")
    if header and len(line_of) < header.words:
        raise DataError(f"{path}: the first line promises {header.words} words, but the file ends after {len(line_of)}")
    rows = np.frombuffer(numbers, np.float32).reshape(-1, dim)
    lines = list(line_of.values())
    _refuse_infinite(rows, lambda row: f"{path}:{lines[row]}")
    return WordVectors(list(line_of), torch.from_numpy(rows))


def _guess_dim(path: str) -> int:
    """How many numbers most of the first 1,000 lines end in."""
    sizes: Counter[int] = Counter()
    for _, line in _lines(path):
        columns = line.split(" ")
        size = next((n for n, text in enumerate(reversed(columns)) if not _is_number(text)), len(columns) - 1)
        sizes[size] += 1
        if sizes.total() == 1000:
            break
    dim = sizes.most_common(1)[0][0]
    if dim == 0:
        raise DataError(f"{path}:1: not word vectors: most lines do not end in numbers, as in word2vec and GloVe text")
    return dim


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank, without the space that word2vec's own program leaves at their end."""
    return ((n, line.rstrip(" ")) for n, line in read_lines(path, _MAX_LINE) if line.strip(" "))


def _read_binary(file: BinaryIO, path: str, header: _Header) -> WordVectors:
    count, dim = header
    rows = np.empty((count, dim), np.float32)  # memory is taken as rows are filled
    row_of: dict[str, int] = {}
    data, at, width = b"", 0, 4 * dim
    for row in range(count):
        while (space := data.find(b" ", at)) < 0 or space + 1 + width > len(data):
            more = file.read(max(_PIECE, width))
            if not more:
                raise DataError(f"{path}: the header promises {count} words, but the file ends inside word {row + 1}")
            if space < 0 and len(data) - at > _MAX_WORD:
                raise DataError(f"{path}: word {row + 1} has no end; the file is damaged, or has another format")
            data, at = data[at:] + more, 0
        stored = data[at:space].lstrip(b"\n")
        try:
            word = stored.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: word {row + 1}, {stored[:40]!r}, is not UTF-8; the file is damaged, or has another encoding"
            ) from error
        if word in row_of:
            raise DataError(f'{path}: word {row + 1}, "{word}", is word {row_of[word] + 1} already; remove one')
        row_of[word] = row
        rows[row] = np.frombuffer(data, "<f4", dim, offset=space + 1)
        at = space + 1 + width
    if (data[at:] + file.read(_PIECE)).strip():
        raise DataError(
            f"{path}: the header promises {count} words, but more follows; the header or the file is damaged"
        )
    _refuse_infinite(rows, lambda row: f"{path}: word {row + 1}")
    return WordVectors(list(row_of), torch.from_numpy(rows))


def _check_header(header: _Header, path: str, bytes_per_word: int) -> None:
    """Refuse a header that promises more than a file of this size can hold."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        most = size * _MAX_INFLATION if file.read(2) == b"\x1f\x8b" else size
    if not header.words or not header.dim or header.words * bytes_per_word > most:
        raise DataError(
            f"{path}:1: the header promises {header.words} words of {header.dim} numbers, which a file of {size} bytes "
            "cannot hold; the file is cut short, or this is not a header"
        )


def _refuse_infinite(rows: npt.NDArray[np.float32], place: Callable[[int], str]) -> None:
    for start in range(0, len(rows), _ROWS):
        finite = np.isfinite(rows[start : start + _ROWS]).all(axis=1)
        if not finite.all():
            raise DataError(f"{place(start + int(finite.argmin()))}: the vector holds NaN or an infinite number")


def _is_text(data: bytes, dim: int) -> bool:
    """Whether the data after a header is text: a line that ends in numbers or, if damaged, at least UTF-8."""
    columns = data.split(b"\n", 1)[0].rstrip().rsplit(b" ", dim)
    if len(columns) == dim + 1 and all(map(_is_number, columns[1:])):
        return True
    end = data.find(b" ") + 1 + 4 * dim  # of a binary record, whose bytes may happen to be letters
    if end > 4 * dim and data[end : end + 1] == b"\n":
        return False
    data = data.rstrip()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 4:  # not just a character cut off where the data ends
            return False
    return not re.search(rb"[\x00-\x08\x0e-\x1f]", data)


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as stored:
            if stored.peek(2).startswith(b"\x1f\x8b"):
                with gzip.GzipFile(fileobj=stored) as unpacked:
                    yield cast("BinaryIO", unpacked)
            else:
                yield stored
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the compressed data is damaged or cut short: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
