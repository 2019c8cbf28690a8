"""Applying a verb to many lines: line N of the output belongs to line N of the input, even if it fails.

Lines are computed and written in windows. A window ends after a number of lines or of characters, so that memory is
bounded and the same input always has the same windows; a resumed job is therefore equal to an uninterrupted one to the
last digit. In a pipe, a window also ends when there is nothing more to read yet.

If a window fails, it is halved until the failing line is alone. All other lines get their answers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from seqloom.data.files import STDIN, Advance, ignore, read_blocks
from seqloom.errors import DataError, SeqloomError
from seqloom.predict.results import Result

WINDOW_LINES = 1024
WINDOW_CHARACTERS = 1 << 20
LONGEST_LINE = 1 << 20  # bytes
FAILS = ("bad_utf8", "endless_line")
"""Faults of a line; the others concern the file."""


@dataclass(frozen=True, slots=True)
class Line:
    """The texts of a line, or of two lines that belong together; `fault` says why it cannot be used."""

    texts: tuple[Any, ...]
    """Each is a str or, where a record has words, a tuple of them."""
    kind: str = ""
    fault: str = ""


def read_lines(path: str, advance: Advance = ignore) -> Iterator[list[Line]]:
    """The lines of a file, or of standard input (-), as they arrive; a file that is cut off is an error at its end."""
    for block in read_blocks(path, LONGEST_LINE, advance):
        faults = {fault.line - block.first: fault for fault in block.faults if fault.kind in FAILS}
        lines = []
        for index, text in enumerate(block.lines):
            if fault := faults.get(index):
                lines.append(Line((text,), fault.kind, fault.message))
            else:
                lines.append(find_nul(text) or Line((text,)))
        yield lines
        for fault in block.faults:
            if fault.line == 0 and fault.kind != "empty_file":
                raise DataError(f"{'standard input' if path == STDIN else path}: {fault.message}")


def find_nul(text: str) -> Line | None:
    """A text that cannot be used because of a NUL in it."""
    place = text.find("\0")
    return Line((text,), "nul", f"U+0000 at character {place + 1}") if place >= 0 else None


def read_pairs(paths: tuple[str, str]) -> Iterator[list[Line]]:
    """The lines of two files side by side."""
    first, second = ((line for lines in read_lines(path) for line in lines) for path in paths)
    for number, (one, other) in enumerate(zip_longest(first, second), start=1):
        if one is None or other is None:
            raise DataError(f"{paths[one is not None]}: ends before line {number}, which {paths[one is None]} has")
        bad = one if one.fault else other
        yield [Line((*one.texts, *other.texts), bad.kind, bad.fault)]


def split_columns(blocks: Iterable[list[Line]], count: int, optional: int = 0) -> Iterator[list[Line]]:
    """Lines of several texts, separated by tabs; a line of white space is blank in all of them.

    `optional` is how many texts may be missing at the end of a line; they are blank.
    """
    for lines in blocks:
        yield [line if line.fault else _split(line.texts[0], count, optional) for line in lines]


def _split(text: str, count: int, optional: int) -> Line:
    cells = tuple(text.split("\t")) if text.strip() else ("",) * count
    if count - optional <= len(cells) <= count:
        return Line(cells + ("",) * (count - len(cells)))
    wanted = f"{count - optional} to {count}" if optional else f"{count}"
    return Line(cells, "columns", f"the line has {len(cells)} texts separated by tabs, but {wanted} are needed")


def close_windows(blocks: Iterable[list[Line]], *, wait: bool) -> Iterator[list[Line]]:
    """Group lines into windows; without `wait`, a window ends where the next line has not arrived yet."""
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


Verb = Callable[..., Sequence[Result]]
"""Takes the numbers of some lines and, for each column, the list of their texts; returns a result for each line.

A verb that is sent to another machine takes a `Predictor` first.
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a line has no answer."""

    kind: str
    message: str


LineResult = Result | Failure
Runner = Callable[[Iterable[list[Line]], int], Iterator[tuple[list[Line], list[LineResult]]]]
"""Takes windows of lines and the number of the first line; yields each window with its results, in order."""


def run_here(verb: Verb) -> Runner:
    """A runner in this process, one window after the other."""

    def run_windows(windows: Iterable[list[Line]], first: int) -> Iterator[tuple[list[Line], list[LineResult]]]:
        for window in windows:
            yield window, apply_verb(window, verb, first)
            first += len(window)

    return run_windows


def apply_verb(lines: Sequence[Line], verb: Verb, first: int = 1) -> list[LineResult]:
    """The result of each line; `first` is the number of the first line."""
    numbers = [number for number, line in enumerate(lines, first) if not line.fault]
    answers = iter(_apply_or_halve(numbers, [lines[number - first] for number in numbers], verb))
    return [Failure(line.kind, line.fault) if line.fault else next(answers) for line in lines]


def _apply_or_halve(numbers: Sequence[int], lines: Sequence[Line], verb: Verb) -> list[LineResult]:
    if not lines:
        return []
    try:
        columns = zip(*(line.texts for line in lines), strict=True)
        return list(verb(numbers, *(list(column) for column in columns)))
    except SeqloomError as error:
        if len(lines) == 1:
            return [Failure("refused", str(error))]
    half = len(lines) // 2
    return _apply_or_halve(numbers[:half], lines[:half], verb) + _apply_or_halve(numbers[half:], lines[half:], verb)


def count_flags(results: Iterable[LineResult]) -> Counter[str]:
    """How many lines failed, and how many have each flag."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(("failed",) if isinstance(result, Failure) else result.flags)
    return counts


def describe_flags(first: int, results: Iterable[LineResult]) -> Iterator[str]:
    """A sentence for each line that failed or was too long; `first` is the number of the first line."""
    for number, result in enumerate(results, start=first):
        match result:
            case Failure(kind, message):
                yield f"line {number}: failed: {kind}: {message}"
            case Result(flags=flags) if "split" in flags:
                yield f"line {number}: too long for the model: processed in {result.pieces} pieces"
            case Result(flags=flags) if "shortened" in flags:
                yield f"line {number}: too long for the model: it read the last of {result.pieces} pieces"
