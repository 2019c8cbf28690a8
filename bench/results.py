"""docs/results.md and docs/reliability.md: each bench owns a section, between two marks, and rewrites only that."""

import importlib.metadata
import os
import platform
import re
from datetime import date
from pathlib import Path

FILE = Path(__file__).parents[1] / "docs" / "results.md"
RELIABILITY = FILE.with_name("reliability.md")
_HEAD = "# What was measured\n\nEach section is written by the program it names; run it with `--write` to renew it.\n"


def write_section(program: str, text: str, file: Path = FILE) -> None:
    """Put `text` where `program` wrote last, or at the end."""
    before = file.read_text() if file.exists() else _HEAD
    start, end = f"<!-- {program} -->", f"<!-- end of {program} -->"
    section = f"{start}\n{text.strip()}\n\nMeasured on {date.today()} by `python {program}` on {name_machine()}.\n{end}"
    mine = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    after = mine.sub(lambda _: section, before) if mine.search(before) else f"{before.rstrip()}\n\n{section}\n"
    file.write_text(after)


def name_machine() -> str:
    """Cores, processor and what computes on them."""
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        processor = named[1] if named else processor
    return f"{os.cpu_count()} cores ({processor}), PyTorch {importlib.metadata.version('torch')}"


def draw_table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown that is also one in a terminal."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]

    def draw(cells: list[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([draw(head), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(draw, rows)])
