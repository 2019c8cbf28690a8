"""The public surface: what `import seqloom` gives, and that nothing inside the package hides it."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import seqloom

ROOT = Path(__file__).parents[2]
FUNCTIONS = {"assemble", "load", "train"}


def test_no_module_hides_a_public_name() -> None:
    package = ROOT / "src" / "seqloom"
    for path in package.rglob("*.py"):
        if path.stem != "__main__":
            import_module(".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"))
    for name in seqloom.__all__:
        if name == "__version__":
            assert re.fullmatch(r"\d+\.\d+\.\d+", seqloom.__version__)
            continue
        value = getattr(seqloom, name)
        assert inspect.isfunction(value) if name in FUNCTIONS else inspect.isclass(value), name
        assert value.__name__ == name
        assert value.__module__.startswith("seqloom."), name


def test_every_public_name_is_listed_and_explained() -> None:
    assert set(seqloom.__all__) == set(dir(seqloom))
    for name in {*seqloom.__all__} - {"__version__"}:
        assert len((getattr(seqloom, name).__doc__ or "").split()) > 3, name
    for name in FUNCTIONS:
        assert "Example:" in getattr(seqloom, name).__doc__, name
    for name, member in vars(seqloom.Model).items():
        if not name.startswith("_"):
            assert member.__doc__, f"Model.{name}"


def test_there_is_nothing_else() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'translate'"):
        seqloom.translate  # noqa: B018  # type: ignore[attr-defined]


def test_what_is_exported_at_run_time_is_what_type_checkers_see() -> None:
    """The table of `__getattr__` and the imports for type checkers name the same things."""
    source = (ROOT / "src" / "seqloom" / "__init__.py").read_text(encoding="utf-8")
    imports = source.partition("if TYPE_CHECKING:\n")[2].partition("\n__version__")[0]
    seen = []
    for node in ast.parse(inspect.cleandoc("    " + imports.lstrip())).body:
        assert isinstance(node, ast.ImportFrom)
        for name in (alias.name for alias in node.names):
            assert getattr(seqloom, name) is getattr(import_module(str(node.module)), name), name
            seen.append(name)
    assert sorted([*seen, "__version__"]) == sorted(seqloom.__all__)


def test_a_model_shows_only_what_is_public() -> None:
    public = {name for name in dir(seqloom.Model) if not name.startswith("_")}
    verbs = {"translate", "generate", "stream", "classify", "tag", "embed", "fill", "score", "evaluate"}
    assert public == verbs | {
        "align",
        "trace",
        "heads",
        "run_with_cache",
        "precision",
        "width",
        "network",
        "tokenizer",
        "config",
        "labels",
        "folder",
        "engine",
        "device",
        "save",
    }


def test_importing_the_public_errors_is_cheap() -> None:
    code = "import seqloom, sys; seqloom.ConfigError; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_page_of_the_surface_is_up_to_date() -> None:
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        render = import_module("api").render
    finally:
        sys.path.remove(str(ROOT / "bench"))
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert page == render(), "docs/api.md is not what the package says; run `make api`"


def test_a_run_shows_only_what_is_public() -> None:
    run = seqloom.Run("runs/none")
    named = {"folder", "checkpoints", "snapshots", "data", "treated", "weights", "log", "speed", "finished"}
    assert {name for name in {*dir(run), *dir(seqloom.Run)} if not name.startswith("_")} == named
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    about = page.partition("### Run\n")[2].partition("\n### ")[0]
    assert all(f"- `{name}: " in about for name in named)
    assert "- `flags: " in page.partition("### Translation\n")[2].partition("\n### ")[0]
