"""What docs/extending.md adds is held to the types and contracts of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from walkthroughs import ROOT, WalkThrough, read_page

PAGE = read_page()
CONTRACTS = [walk for walk in PAGE if walk.select("contracts")]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy knows of the files that no walk-through changes."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize("walk", PAGE, ids=[walk.name for walk in PAGE])
def test_types_are_right(walk: WalkThrough, tmp_path: Path, cache: Path) -> None:
    walk.change_copy(tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("walk", CONTRACTS, ids=[walk.name for walk in CONTRACTS])
def test_contracts_hold(walk: WalkThrough, tmp_path: Path) -> None:
    source = walk.change_copy(tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    prelude = f'set -eu\npytest() {{ "{sys.executable}" -m pytest "$@"; }}\n'
    for block in walk.select("contracts"):
        if block.file is not None:
            block.write(tmp_path)
        else:
            assert block.language == "sh"
            done = subprocess.run(
                ["bash", "-c", prelude + block.text],
                cwd=tmp_path,
                env=os.environ | {"PYTHONPATH": str(source)},
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout + done.stderr
