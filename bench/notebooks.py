"""The chapters of the course as notebooks: python bench/notebooks.py FOLDER

jupytext turns text and Python blocks into cells. What a block prints is left out, because a notebook prints it itself.
A solution is folded: its text by the `<details>` around it, which ends where its code begins, and its code by the cell.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

import jupytext

CHAPTERS = sorted((Path(__file__).parents[1] / "docs" / "course").glob("[0-9]*.md"))
PRINTED = re.compile(r"(^```python\n.*?^```\n)\n```text\n.*?^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^):]+)\)")
FOLDED = {"jupyter": {"source_hidden": True}, "tags": ["hide-input"]}


def write_notebooks(folder: Path) -> list[Path]:
    """Write a notebook for each chapter."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for chapter in CHAPTERS:
        path = folder / f"{chapter.stem}.ipynb"
        jupytext.write(make_notebook(chapter, folder), path)
        written.append(path)
    return written


def make_notebook(chapter: Path, folder: Path) -> Any:
    """The notebook of a chapter, with links that lead from the folder to the documents."""

    def lead(match: re.Match[str]) -> str:
        file, _, place = match[1].partition("#")
        if re.match(r"[0-9]", file):
            return f"]({Path(file).stem}.ipynb)"
        target = os.path.relpath(chapter.parent / file, folder)
        return f"]({Path(target).as_posix()}{'#' + place if place else ''})"

    text = PRINTED.sub(r"\1", chapter.read_text(encoding="utf-8"))
    notebook = jupytext.reads(text, "md")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    folded = False
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if folded:
                cell.metadata.update(FOLDED)
            continue
        source = cell.source.removeprefix("</details>").lstrip() if folded else cell.source
        folded = source.count("<details>") > source.count("</details>")
        cell.source = LINK.sub(lead, source) + "\n\n</details>" * folded
    return notebook


if __name__ == "__main__":
    for path in write_notebooks(Path(sys.argv[1])):
        print(path)
