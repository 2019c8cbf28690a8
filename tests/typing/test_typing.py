"""The package is typed for its users: a page of their code is checked by mypy and by pyright, both strict."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).with_name("page.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_mypy_understands_a_page_of_a_users_code() -> None:
    call = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--follow-imports=silent", str(PAGE)]
    done = subprocess.run(call, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.skipif(find_spec("basedpyright") is None, reason="pip install basedpyright")
def test_pyright_understands_a_page_of_a_users_code(tmp_path: Path) -> None:
    settings = {
        "include": [str(PAGE)],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
        "enableTypeIgnoreComments": False,
        "extraPaths": [path for path in sys.path if path.endswith(("site-packages", "src"))],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    call = [sys.executable, "-m", "basedpyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
