"""Files of a repaired copy, each line of which knows its line in the original, and the log of what was changed."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from seqloom.data.doctor.ledger import Column
from seqloom.data.fault import BadRecord
from seqloom.data.layout import Layout, Line
from seqloom.data.lines import read_blocks

SHOWN = 1000
"""Characters of a text that the log repeats."""


def write_json(value: object) -> str:
    """JSON that is one line to every tool."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


class Journal:
    """`changes.jsonl`: one object for each change, with the file and line of the original."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("w", encoding="utf-8")
        self.counts: Counter[tuple[str, str]] = Counter()
        """How many times, by kind of finding and change."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.close()

    def write(self, file: str, line: int, kind: str, change: str, **details: str | int) -> None:
        """Note a change."""
        self.counts[kind, change] += int(details.get("lines", 1))
        shown = {key: value[:SHOWN] if isinstance(value, str) else value for key, value in details.items()}
        entry = {"file": file, "line": line, "kind": kind, "change": change, **shown}
        self.stream.write(write_json(entry) + "\n")


@dataclass(slots=True)
class Copy:
    """A file of the copy."""

    original: str
    path: Path
    layout: Layout | None
    """How its records stand; None: one a line."""
    numbers: Column
    """For each line, which line of the original it is."""

    def lines(self) -> Iterator[Line]:
        """The lines, numbered from 1."""
        for block in read_blocks(str(self.path), max_line=1 << 62):
            yield from enumerate(block.lines, start=block.first)

    def number(self) -> None:
        """Line N of the copy is line N of the original."""
        self.numbers = np.arange(1, 1 + sum(1 for _ in self.lines()))

    def widen(self, faulty: dict[int, str]) -> dict[int, str]:
        """All lines of the records that have a faulty line."""
        if self.layout is None:
            return faulty
        widened = dict(faulty)
        groups = self.layout.split(self.lines())
        try:
            for group in groups:
                kind = next((faulty[number] for number, _ in group if number in faulty), None)
                if kind is not None:
                    widened |= {number: kind for number, _ in group}
        except BadRecord:  # what cannot be divided into records goes line by line
            pass
        return widened

    def drop(self, lines: dict[int, str], journal: Journal) -> None:
        """Leave out lines, each for a kind of fault."""
        kept: list[int] = []

        def remaining() -> Iterable[str]:
            for number, text in self.lines():
                if number in lines:
                    journal.write(self.original, int(self.numbers[number - 1]), lines[number], "dropped", before=text)
                else:
                    kept.append(number - 1)
                    yield text + "\n"

        shorter = self.path.with_name(self.path.name + ".part")
        with shorter.open("w", encoding="utf-8", newline="\n") as out:
            out.writelines(remaining())
        shorter.replace(self.path)
        self.numbers = self.numbers[kept]
