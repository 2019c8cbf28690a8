"""The walk-throughs of docs/extending.md, and how to follow one in a copy of the package."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "extending.md"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:New file|In) `([^`]+)`:$")
_STAGES = {"**Use it.**": "use", "**Hold it to the contracts.**": "contracts"}


@dataclass(frozen=True)
class Block:
    """A fenced block, and the file that the line above it names."""

    stage: Literal["change", "use", "contracts"]
    language: str
    text: str
    file: str | None

    def write(self, folder: Path) -> None:
        """Create or change the file in a folder."""
        assert self.file is not None
        path = folder / self.file
        if self.language == "diff":
            path.write_text(apply(self.text, path.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            assert not path.exists(), f"{self.file} is there already; the page calls it new"
            path.write_text(self.text, encoding="utf-8")


@dataclass(frozen=True)
class WalkThrough:
    """A section of the page."""

    name: str
    blocks: tuple[Block, ...]

    def select(self, stage: str) -> list[Block]:
        return [block for block in self.blocks if block.stage == stage]

    def change_copy(self, folder: Path) -> Path:
        """Copy the package into a folder, make the changes, and return where it can be imported from."""
        skipped = shutil.ignore_patterns("__pycache__", "*.c", "*.h", "CMakeLists.txt")
        shutil.copytree(ROOT / "src" / "seqloom", folder / "src" / "seqloom", ignore=skipped)
        for block in self.select("change"):
            block.write(folder)
        # Python imports this at its start: the copy is to be found, not the package that is installed for editing.
        (folder / "src" / "sitecustomize.py").write_text(
            "import sys\nsys.meta_path[:] = [one for one in sys.meta_path if 'editable' not in type(one).__module__]\n",
            encoding="utf-8",
        )
        return folder / "src"


def read_page() -> list[WalkThrough]:
    """The numbered sections of the page."""
    sections = re.split(r"^## \d+\. (.+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [
        WalkThrough(name, tuple(_read_blocks(text))) for name, text in zip(sections[::2], sections[1::2], strict=True)
    ]


def _read_blocks(section: str) -> list[Block]:
    blocks, stage, end = [], "change", 0
    for fence in _FENCE.finditer(section):
        between = section[end : fence.start()]
        end = fence.end()
        stage = next((stage for mark, stage in _STAGES.items() if mark in between), stage)
        named = _FILE.search(between.rstrip())
        blocks.append(Block(stage, fence[1], fence[2], named[1] if named else None))  # type: ignore[arg-type]
    return blocks


def apply(diff: str, text: str) -> str:
    """Put the lines of a diff into a text; what it finds or takes away must be there exactly once."""
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        assert all(line[0] in " +-\n" for line in lines), f"a line is not that of a diff:\n{hunk}"
        old = "".join(line[1:] or line for line in lines if line[0] != "+")
        new = "".join(line[1:] or line for line in lines if line[0] != "-")
        assert old, f"nothing says where this belongs:\n{hunk}"
        assert text.count(old) == 1, f"this must be in the file exactly once, not {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text


def find_missing(promised: str, printed: str) -> str | None:
    """The first promised line that was not printed, in the order of the promise; … stands for anything."""
    lines = iter(printed.splitlines())
    for line in promised.splitlines():
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        if not any(pattern.fullmatch(one.rstrip()) for one in lines):
            return line
    return None
