"""A chapter of the course works as a notebook; tests/long executes all of them."""

from pathlib import Path

from notebooks import CHAPTERS, execute


def test_a_notebook_prints_what_its_chapter_says(tmp_path: Path) -> None:
    chapter = next(path for path in CHAPTERS if "self-attention" in path.name)
    printed = execute(chapter, tmp_path)
    assert "[[0.881 0.119 0.    0.   ]\n [0.018 0.982 0.    0.   ]]" in printed
