"""Bulk jobs: results go to a stream as lines arrive, or to a file by a job that can be killed and resumed at any time.

A small file beside the output, `OUTPUT.progress`, holds the number of lines and bytes done, the SHA-256 of the input so
far, and the settings. It is replaced as a whole after each window has reached the disk. A resumed job cuts the output
to that many bytes, skips that many lines of the input, and continues. Another input, model or option is refused.
"""

import hashlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from seqloom.errors import DataError, SeqloomError
from seqloom.predict.bulk import Failure, Line, LineResult, Runner, close_windows, count_flags
from seqloom.predict.formats import Format, flatten
from seqloom.predict.results import Result
from seqloom.runs.run import hold

Report = Callable[[int, Sequence[LineResult]], None]
"""Called after each window is written, with the number of its first line and its results."""
StreamVerb = Callable[[int, str], Generator[str, None, Result]]
"""Takes the number of a line and its text; yields the answer in parts, and returns the whole result."""


def run_to_stream(
    blocks: Iterable[list[Line]], answer: Runner, format: Format, stream: BinaryIO, report: Report
) -> Counter[str]:
    """Answer lines as they arrive."""
    counts: Counter[str] = Counter()
    number = 1
    for window, results in answer(close_windows(blocks, wait=False), number):
        with _uninterrupted(), _writing("standard output"):
            stream.write(format.write(number, results))
            stream.flush()
        counts += count_flags(results)
        report(number, results)
        number += len(window)
    return counts


def run_streaming(blocks: Iterable[list[Line]], verb: StreamVerb, stream: BinaryIO, report: Report) -> Counter[str]:
    """Answer lines one by one, and write each answer as it grows; the final output is the same."""
    counts: Counter[str] = Counter()
    for number, line in enumerate((line for block in blocks for line in block), start=1):
        result = _stream_line(number, line, verb, stream)
        counts += count_flags([result])
        report(number, [result])
    return counts


def _stream_line(number: int, line: Line, verb: StreamVerb, stream: BinaryIO) -> LineResult:
    result: LineResult = Failure(line.kind, line.fault)
    if not line.fault:
        parts, held = verb(number, line.texts[0]), ""
        try:
            while True:
                part = held + next(parts)
                held = part[len(part.removesuffix("\r")) :]  # may be the first half of a line break
                stream.write(flatten(part.removesuffix("\r")).encode())
                stream.flush()
        except StopIteration as end:
            stream.write(held.encode())
            result = end.value
        except SeqloomError as error:
            result = Failure("refused", str(error))
    mark = f"[failed: {result.kind}]" if isinstance(result, Failure) else ""
    stream.write(f"{mark}\n".encode())
    stream.flush()
    return result


def run_to_file(
    blocks: Iterable[list[Line]],
    answer: Runner,
    format: Format,
    path: Path,
    settings: Mapping[str, Any],
    *,
    resume: bool,
    report: Report,
) -> Counter[str]:
    """Write the results of all lines to a file. The output depends only on the input and `settings`."""
    job = _Job(path, format, dict(settings))
    lines, size, digest, counts = job.resume() if resume else job.start()
    hasher = hashlib.sha256()
    rest = _skip(blocks, lines, hasher)
    if hasher.hexdigest() != digest:
        raise DataError(
            f"{path}: was started with another input: its first {lines:,} lines differ; "
            "give the same input, or remove the file to start again"
        )
    with job.open(size) as file:
        for window, results in answer(close_windows(rest, wait=True), lines + 1):
            for line in window:
                _hash(hasher, line)
            counts += count_flags(results)
            with _uninterrupted(), _writing(str(path)):
                job.commit(file, format.write(lines + 1, results), lines + len(window), hasher.hexdigest(), counts)
            report(lines + 1, results)
            lines += len(window)
    format.finish(job.body, path)
    return counts


class _Job:
    """The output of a bulk job and its progress file."""

    def __init__(self, path: Path, format: Format, settings: dict[str, Any]) -> None:
        self.path, self.format = path, format
        self.settings = json.loads(json.dumps(settings))  # as it will be read back
        grows = type(format).finish is Format.finish
        self.body = path if grows else path.with_name(path.name + ".partial")
        self.note = path.with_name(path.name + ".progress")

    def start(self) -> tuple[int, int, str, Counter[str]]:
        """Start a new output; there must be none yet."""
        for path in (self.path, self.body):
            if path.exists():
                raise DataError(f"{path}: exists already; give --resume to continue it, or remove it to start again")
        with _writing(str(self.path)), self.body.open("wb") as file:
            self.commit(file, self.format.head, 0, hashlib.sha256().hexdigest(), Counter())
        return self._read()

    def resume(self) -> tuple[int, int, str, Counter[str]]:
        """Read how much of an output is done; start a new one if there is none."""
        if not self.note.exists() and self._has_nothing():
            self.body.unlink(missing_ok=True)  # a job was killed before its progress was written
            return self.start()
        if not self.note.exists():
            raise DataError(f"{self.path}: there is no {self.note.name} beside it, so the job cannot be resumed")
        if not self.body.exists():
            raise DataError(f"{self.path}: {'is finished' if self.path.exists() else 'is gone'}; nothing to resume")
        return self._read()

    def _has_nothing(self) -> bool:
        """Whether there is no output yet, or at most its head."""
        if self.path.exists() and self.path != self.body:
            return False
        if not self.body.exists():
            return True
        with self.body.open("rb") as file:
            return self.format.head.startswith(file.read(len(self.format.head) + 1))

    def open(self, size: int) -> BinaryIO:
        """Open the output, cut to what is done, and lock it against other jobs."""
        file = self.body.open("r+b")
        try:
            hold(file)
        except OSError:
            raise DataError(f"{self.path}: another job is writing to it; wait for it, or stop it") from None
        file.truncate(size)
        file.seek(size)
        return file

    def commit(self, file: BinaryIO, content: bytes, lines: int, digest: str, counts: Counter[str]) -> None:
        """Write a window to the disk, then the progress file."""
        file.write(content)
        self.format.amend(file, lines)
        file.flush()
        os.fsync(file.fileno())
        note = {"lines": lines, "bytes": file.tell(), "input": digest, "counts": dict(counts), "asked": self.settings}
        partial = self.note.with_name(self.note.name + ".new")
        with partial.open("w", encoding="utf-8") as written:
            written.write(json.dumps(note, indent=1, ensure_ascii=False) + "\n")
            written.flush()
            os.fsync(written.fileno())
        partial.replace(self.note)

    def _read(self) -> tuple[int, int, str, Counter[str]]:
        try:
            note = json.loads(self.note.read_bytes())
            known = note["lines"], note["bytes"], note["input"], Counter(note["counts"])
            before = note["asked"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self.note}: cannot be read ({error}); remove it and {self.body} first") from None
        changed = sorted(key for key in {*before, *self.settings} if before.get(key) != self.settings.get(key))
        if changed:
            raise DataError(
                f"{self.path}: was started with other settings ({', '.join(changed)}); "
                "give the same ones, or remove the file to start again"
            )
        if self.body.stat().st_size < known[1]:
            raise DataError(f"{self.body}: is shorter than its progress file says; remove it to start again")
        return known


def _skip(blocks: Iterable[list[Line]], count: int, hasher: Any) -> Iterator[list[Line]]:
    """Hash the first `count` lines at once, and return an iterator over the others."""
    rest = iter(blocks)
    left: list[Line] = []
    while count and (lines := next(rest, None)) is not None:
        for line in lines[:count]:
            _hash(hasher, line)
        left, count = lines[count:], count - min(count, len(lines))
    return (lines for part in ([left], rest) for lines in part)


def _hash(hasher: Any, line: Line) -> None:
    hasher.update(repr((line.texts, line.kind)).encode())


@contextmanager
def _writing(name: str) -> Iterator[None]:
    """Turn errors such as a full disk into a `DataError`, but not a broken pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DataError(f"{name}: cannot be written: {error.strerror}") from None


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the block is done, so that no line is written in part."""
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt
