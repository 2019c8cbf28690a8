"""Logs: files with one JSON object a line, written by a training and read while it goes on.

Only LF ends a line: a text may hold U+2028. The last line may be half written, and is left for later. A training that
resumes cuts its log to where its checkpoint was saved, and writes on from there.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]
_KEPT = 64
"""So many bytes before the place that was read to tell whether a log was cut in the meantime."""


class Log:
    """Lines of JSON."""

    def __init__(self, path: Path, writes: bool) -> None:
        self.path, self._writes = path, writes

    def add(self, **values: Any) -> None:
        """Append one line."""
        if not self._writes:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values, ensure_ascii=False) + "\n")

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def cut(self, size: int) -> None:
        """Forget what was written after `size` bytes: those steps will be taken again."""
        if self._writes and self.size > size:
            with self.path.open("r+b") as file:
                file.truncate(size)


@dataclass
class News:
    """What was written to a log since it was last read."""

    lines: list[Line] = field(default_factory=list)
    damaged: int = 0
    """Lines that are not what was written."""
    anew: bool = False
    """Whether the log was cut since: what was read before counts no longer, and these are all lines."""


class LogReader:
    """Reads a log again and again, each time what is new."""

    def __init__(self, path: Path) -> None:
        self._path, self._place, self._before = path, 0, b""

    def read(self) -> News:
        """The lines that are new and whole; none where there is no log."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place - len(self._before))
                anew = file.read(len(self._before)) != self._before
                if anew:
                    self._place, self._before = 0, b""
                    file.seek(0)
                content = file.read()
        except OSError:
            anew, content = self._place > 0, b""
            self._place, self._before = 0, b""
        whole = content[: content.rfind(b"\n") + 1]
        self._place += len(whole)
        self._before = (self._before + whole[-_KEPT:])[-_KEPT:]
        news = News(anew=anew)
        for text in whole.split(b"\n")[:-1]:
            line = _parse(text)
            if line is None:
                news.damaged += 1
            else:
                news.lines.append(line)
        return news


def read_log(path: Path) -> list[Line]:
    """The lines of a log that can be read."""
    return LogReader(path).read().lines


def _parse(text: bytes) -> Line | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
