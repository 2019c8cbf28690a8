"""Every chapter of the course works as a notebook."""

from pathlib import Path

import pytest

from notebooks import CHAPTERS, execute


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.name)
def test_notebooks_run(chapter: Path, tmp_path: Path) -> None:
    assert execute(chapter, tmp_path)
