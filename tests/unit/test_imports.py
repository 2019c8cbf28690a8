"""The architecture, held by a test: imports go one way, files stay small, and importing seqloom is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "seqloom"
ROOMS = [
    "errors",
    "devices",
    "types",
    "seeds",
    "files",
    "config",
    "native",
    "text",
    "metrics",
    "data",
    "nn",
    "encoders",
    "decoders",
    "models",
    "decode",
    "tasks",
    "runs",
    "hub",
    "page",
    "lens",
    "training",
    "predict",
    "lab",
    "serve",
    "demo",
    "cli",
]
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if module == "seqloom":
                names |= {alias.name for alias in node.names if not alias.name.startswith("_")}
            case ast.ImportFrom(module=str(module), level=0) if module.startswith("seqloom."):
                names.add(module.split(".")[1])
            case ast.ImportFrom(level=level) if level > 0:
                raise AssertionError(f"{path}: relative import; write it out")
            case ast.Import():
                names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("seqloom.")}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    here = room_of(path)
    if here in ("__init__", "__main__"):
        assert imported_rooms(path) <= set(ROOMS)
        return
    assert here in ROOMS, f"{here} has no place in the order of rooms; give it one in docs/architecture.md and here"
    allowed = set(ROOMS[: ROOMS.index(here) + 1])
    assert imported_rooms(path) <= allowed


def test_mathematics_sees_no_configuration() -> None:
    for room in ("native", "nn", "encoders", "decoders", "decode"):
        for path in (PACKAGE / room).rglob("*.py"):
            assert not imported_rooms(path) & {"config", "text", "data"}, path


def test_search_sees_no_model() -> None:
    for path in (PACKAGE / "decode").rglob("*.py"):
        assert not imported_rooms(path) & {"models", "encoders", "decoders"}, path


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_are_one_idea(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("module", ["seqloom", "seqloom.cli.main"])
def test_importing_is_cheap(module: str) -> None:
    code = f"import {module}, sys; print(*sorted({{'torch', 'numpy', 'pydantic', 'tokenizers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
