"""Lines in, in windows: what is computed together and written together.

A window is closed by a number of lines or of characters, so that memory is bounded and the same input always has the
same windows; that is what makes a resumed job equal to an unbroken one to the last digit. Where somebody waits at the
other end of a pipe, a window is also closed when there is nothing more to read yet.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from seqloom.data.files import STDIN, Advance, ignore, read_blocks
from seqloom.errors import DataError

WINDOW_LINES = 1024
WINDOW_CHARACTERS = 1 << 20
LONGEST_LINE = 1 << 20  # bytes
_FAILS = ("bad_utf8", "endless_line")  # of a line; the rest concerns the file


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or several that belong together; `fault` says why it cannot be used."""

    texts: tuple[str, ...]
    kind: str = ""
    fault: str = ""


def read_lines(path: str, advance: Advance = ignore) -> Iterator[list[Line]]:
    """The lines of a file, or of standard input (-), as they come in; a file that breaks off is an error at its end."""
    for block in read_blocks(path, LONGEST_LINE, advance):
        faults = {fault.line - block.first: fault for fault in block.faults if fault.kind in _FAILS}
        lines = []
        for index, text in enumerate(block.lines):
            if fault := faults.get(index):
                lines.append(Line((text,), fault.kind, fault.message))
            elif (place := text.find("\0")) >= 0:
                lines.append(Line((text,), "nul", f"U+0000 at character {place + 1}"))
            else:
                lines.append(Line((text,)))
        yield lines
        for fault in block.faults:
            if fault.line == 0 and fault.kind != "empty_file":
                raise DataError(f"{'standard input' if path == STDIN else path}: {fault.message}")


def read_pairs(paths: tuple[str, str]) -> Iterator[list[Line]]:
    """The lines of two files side by side."""
    first, second = ((line for lines in read_lines(path) for line in lines) for path in paths)
    for number, (one, other) in enumerate(zip_longest(first, second), start=1):
        if one is None or other is None:
            raise DataError(f"{paths[one is not None]}: ends before line {number}, which {paths[one is None]} has")
        bad = one if one.fault else other
        yield [Line((*one.texts, *other.texts), bad.kind, bad.fault)]


def split_columns(blocks: Iterable[list[Line]], count: int) -> Iterator[list[Line]]:
    """Lines of several texts, separated by tabs; a line of white space is blank in all of them."""
    for lines in blocks:
        yield [line if line.fault else _split(line.texts[0], count) for line in lines]


def _split(text: str, count: int) -> Line:
    cells = tuple(text.split("\t")) if text.strip() else ("",) * count
    if len(cells) == count:
        return Line(cells)
    return Line(cells, "columns", f"tabs divide the line into {len(cells)}, but {count} texts are needed")


def close_windows(blocks: Iterable[list[Line]], *, wait: bool) -> Iterator[list[Line]]:
    """The same lines in windows; without `wait`, no line waits for lines that have not come in yet."""
    window: list[Line] = []
    size = 0
    for lines in blocks:
        for line in lines:
            window.append(line)
            size += sum(map(len, line.texts))
            if len(window) == WINDOW_LINES or size >= WINDOW_CHARACTERS:
                yield window
                window, size = [], 0
        if window and not wait:
            yield window
            window, size = [], 0
    if window:
        yield window
