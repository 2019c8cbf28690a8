r"""Names of files -> files -> lines of text, streaming.

Only `\n` ends a line. A `\r` before it belongs to the line end (CR LF) and is stripped; every other character that
some tool takes for a line end (lone CR, VT, FF, FS, GS, RS, U+0085, U+2028, U+2029, NUL) is text, so line N here is
line N of `wc -l`, `paste` and `sed`. Memory is bounded by the block size and the longest line allowed: a longer line is
read in pieces, and only its first characters are kept.
"""

import bz2
import difflib
import glob
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from seqloom.data.examples import Fault, raise_unreadable

STDIN = "-"
BLOCK = 1 << 20
"""Bytes read at a time."""
KEPT = 200
"""Bytes kept of a line that is too long."""

Advance = Callable[[int], None]
"""Called with the number of bytes read from the disk since the last call."""
Recode = Callable[[Iterable[bytes]], Iterable[bytes]]
"""Converts the bytes of a file before they are read as UTF-8 lines."""

_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xfe", "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"),
    (b"PK\x03\x04", "a zip archive (or a .docx, .xlsx, .odt); unpack it or save it as plain text"),
    (b"%PDF-", "a PDF document; extract its text first"),
    (b"PAR1", 'a Parquet table; say format = "parquet"'),
    (b"\x28\xb5\x2f\xfd", "Zstandard data; unpack it: zstd -d"),
    (b"\x89PNG", "an image"),
    (b"SQLite format 3\x00", "an SQLite database; export a table as CSV"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file"),
)
_BOM = b"\xef\xbb\xbf"


def find_files(names: Sequence[str], base: Path) -> tuple[list[str], list[Fault]]:
    """Expand files, patterns and folders below `base`; missing ones are returned as faults."""
    found: list[str] = []
    faults: list[Fault] = []
    for name in names:
        files, problem = _expand(name, base)
        found += files
        if problem:
            faults.append(Fault("missing_file", str(base / name), 0, problem))
    return found, faults


def _expand(name: str, base: Path) -> tuple[list[str], str]:
    if name == STDIN:
        return [STDIN], ""
    path = base / name
    if path.is_dir():
        shown = (p for p in path.rglob("*") if not any(part.startswith(".") for part in p.relative_to(path).parts))
        inside = sorted(str(p) for p in shown if p.is_file())
        return inside, "" if inside else "the folder has no files"
    if path.exists():
        return [str(path)], ""
    if path.is_symlink():
        return [], f"this is a link to {path.readlink()}, which does not exist"
    if not glob.has_magic(name):
        return [], f"there is no such file{_nearest(path)}"
    matches = sorted(p for p in glob.glob(str(path), recursive=True) if not Path(p).is_dir())
    return matches, "" if matches else "no file matches the pattern"


def _nearest(path: Path) -> str:
    """Suggest a file with a similar name, or name the first folder of the path that does not exist."""
    if not path.parent.is_dir():
        missing = path.parent
        while not missing.parent.is_dir():
            missing = missing.parent
        return f", and no folder {missing}"
    close = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines of a file, without their line ends, and their faults."""

    first: int
    """The number of the first line, from 1."""
    lines: list[str]
    faults: list[Fault]


def ignore(_bytes: int) -> None:
    """Report no progress."""


def read_blocks(path: str, max_line: int, advance: Advance = ignore, recode: Recode | None = None) -> Iterator[Block]:
    """Read all lines of a file, compressed or not; a fault never stops the reading of good lines."""
    number, offset = 1, 0
    try:
        with _Source(path) as source:
            foreign = next((what for magic, what in _FOREIGN if source.head.startswith(magic)), None)
            if foreign and recode is None:
                yield Block(1, [], [Fault("not_text", path, 0, f"this is {foreign}")])
                return
            pieces = source.pieces(advance)
            for raw in _whole_lines(recode(pieces) if recode else pieces, max_line):
                block = _decode(raw, path, number, offset, max_line)
                number += len(block.lines)
                offset += raw.size
                yield block
            if offset == 0:
                yield Block(1, [], [Fault("empty_file", path, 0, "the file is empty")])
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        yield Block(number, [], [_damaged(path, number, error)])
    except OSError as error:
        if error.errno is None:  # bzip2 complains this way about its data
            yield Block(number, [], [_damaged(path, number, error)])
            return
        message = f"the file cannot be read: {error.strerror or error}"
        yield Block(number, [], [Fault("unreadable_file", path, 0, message)])


def read_lines(path: str | Path, max_line: int = 1 << 20) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, from 1; raises `DataError` if the file cannot be read."""
    for block in read_blocks(str(path), max_line):
        raise_unreadable(block.faults)
        yield from enumerate(block.lines, start=block.first)


@dataclass(frozen=True, slots=True)
class _Raw:
    """Whole lines, or the start of a line that is too long."""

    data: bytes
    size: int
    """How many bytes of the file they cover."""
    cut: int = 0
    """The full length of the line whose start this is; 0 for whole lines."""


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class _Source:
    """An open file, decompressed as its first bytes show."""

    def __init__(self, path: str) -> None:
        if path == STDIN:
            self.stored = cast("io.BufferedReader", sys.stdin.buffer)
        else:
            self.stored = io.BufferedReader(io.FileIO(path), BLOCK)
        self.close = path != STDIN
        start = self.stored.peek(16)[:16]
        self.stream: _Readable = self.stored
        if start.startswith(b"\x1f\x8b"):
            self.stream = gzip.GzipFile(fileobj=self.stored)
        elif start.startswith(b"\xfd7zXZ\x00"):
            self.stream = lzma.LZMAFile(self.stored)  # noqa: SIM115 - closed with the stored file
        elif start.startswith(b"BZh") and start[4:10] == b"1AY&SY":
            self.stream = bz2.BZ2File(self.stored)
        # A person at a terminal, or a program behind a pipe, waits for answers: do not wait for a full block.
        self.fills = self.stored.seekable() or self.stream is not self.stored
        self.error: Exception | None = None
        self.head = b""

    def __enter__(self) -> "_Source":
        self.head = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        if self.close:
            self.stored.close()

    def pieces(self, advance: Advance) -> Iterator[bytes]:
        """Yield all bytes; progress is reported for files, but not for pipes, whose size is unknown."""
        seekable, seen = self.stored.seekable(), 0
        piece = self.head
        while piece:
            if seekable:
                position = self.stored.tell()
                advance(position - seen)
                seen = position
            yield piece
            piece = self._read()

    def _read(self) -> bytes:
        """Read a block, or less at the end or from a pipe. An error is raised after the good bytes before it."""
        if self.error:
            raise self.error
        parts, wanted = [], BLOCK
        try:
            while wanted and (part := self.stream.read1(wanted)):
                parts.append(part)
                wanted = wanted - len(part) if self.fills else 0
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            self.error = error
            if not parts:
                raise
        return b"".join(parts)


def _whole_lines(pieces: Iterable[bytes], max_line: int) -> Iterator[_Raw]:
    carry, long = b"", 0  # long: the bytes so far of a line that is too long, whose start is in carry
    for data in pieces:
        if long:
            end = data.find(b"\n") + 1
            if not end:
                long += len(data)
                continue
            yield _Raw(carry, long + end, cut=long + end - 1)
            carry, long, data = b"", 0, data[end:]
        end = data.rfind(b"\n") + 1
        if end:
            whole = carry + data[:end]
            yield _Raw(whole, len(whole))
            carry = data[end:]
        else:
            carry += data
        if len(carry) > max_line:
            carry, long = carry[:KEPT], len(carry)
    if carry:
        yield _Raw(carry, long or len(carry), cut=long)


def _decode(raw: _Raw, path: str, first: int, offset: int, max_line: int) -> Block:
    if raw.cut:
        return Block(first, [_show(raw.data)], [_endless(path, first, raw.cut, max_line)])
    data, faults = raw.data, []
    if offset == 0 and data.startswith(_BOM):
        data, offset = data[len(_BOM) :], len(_BOM)
        faults.append(Fault("bom", path, 1, "the file starts with a byte order mark"))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "backslashreplace")
        faults += _find_bad_bytes(data, path, first, offset)
    if "\r" in text and (crlf := text.count("\r\n")):
        start = first + text.count("\n", 0, text.find("\r\n"))
        faults.append(Fault("crlf", path, start, "the line ends with CR LF", crlf))
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if text.endswith("\n") or not text:
        lines.pop()
    if len(data) > max_line:
        for index, line in enumerate(lines):
            if len(line) * 4 > max_line and (size := len(line.encode())) > max_line:
                lines[index] = line[:KEPT]
                faults.append(_endless(path, first + index, size, max_line))
    return Block(first, lines, faults)


def _find_bad_bytes(data: bytes, path: str, first: int, offset: int) -> list[Fault]:
    faults, start = [], 0
    for index, line in enumerate(data.split(b"\n")):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start : error.start + 1]
            letter = byte.decode("cp1252", "ignore")
            message = (
                f"byte 0x{byte.hex()} at byte {error.start + 1} of the line"
                f" (offset {offset + start + error.start} in the file) is not UTF-8: {_show(line, error.start)}"
                + (f" (in Windows-1252 it would be {letter})" if letter.isalpha() else "")
            )
            faults.append(Fault("bad_utf8", path, first + index, message))
        start += len(line) + 1
    return faults


def _damaged(path: str, line: int, error: Exception) -> Fault:
    message = f"the compressed data is damaged or ends early, after line {line - 1:,} ({error}); fetch the file again"
    return Fault("truncated_file", path, 0, message)


def _endless(path: str, line: int, size: int, max_line: int) -> Fault:
    message = (
        f"the line has {size:,} bytes, more than data.max_line_bytes = {max_line:,};"
        " check that the file has line ends, or raise the limit"
    )
    return Fault("endless_line", path, line, message)


def _show(data: bytes, around: int = 0) -> str:
    start = max(0, around - 20)
    return data[start : start + 60].decode("utf-8", "backslashreplace")
