"""Notebooks of the course, executed as a reader would."""

import runpy
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "docs" / "course").glob("[0-9]*.md"))


def execute(chapter: Path, folder: Path) -> str:
    """What all cells of a chapter's notebook print; a cell that fails is an error."""
    bench = runpy.run_path(str(ROOT / "bench" / "notebooks.py"))
    notebook = nbformat.from_dict(bench["make_notebook"](chapter, folder))
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output["text"] for output in outputs if output.get("name") == "stdout")
