"""Every command and code block in README and docs runs, and prints what the text block right after it says."""

import io
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from seqloom.tasks.configuration import parse
from warm import warm_seqloom

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# This page changes the package: test_extending.py runs its blocks in a copy.
RUN_HERE = [path for path in DOCUMENTS if path.name != "extending.md"]
# Pages whose trainings, exports or processes take a quarter of a minute or more.
LONG = ("compare", "distributed", "exporting", "lab", "training", "using")
CHAPTERS = sorted((ROOT / "docs" / "course").glob("[0-9]*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"\s*^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A make target would run this very test again: that it exists, and what it would run, is asked of make itself.
PRELUDE = f'set -euo pipefail\nmake() {{ command make --dry-run -C "{ROOT}" "$@" > /dev/null; }}\n'


def blocks(path: Path) -> Iterator[tuple[str, str, str | None]]:
    """The language and the code of each block, and what stands right after it as its output."""
    text = path.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        printed = PRINTED.match(text, block.end())
        yield *block.groups(), None if printed is None else printed[1]


def write_users_files(folder: Path) -> None:
    """What a reader of the README has: texts of their own, and a configuration that names them."""
    words = {"ein": "a", "der": "the", "hund": "dog", "mann": "man", "vogel": "bird", "rennt": "runs", "singt": "sings"}
    articles, nouns, verbs = list(words)[:2], list(words)[2:5], list(words)[5:]
    lines = [f"{article} {noun} {verb}" for article in articles for noun in nouns for verb in verbs] * 5
    (folder / "train.de").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "train.en").write_text("\n".join(" ".join(map(words.get, line.split())) for line in lines) + "\n")  # type: ignore[arg-type]
    (folder / "de-en.toml").write_text(
        """task = "translation"
data.train = {source = "train.de", target = "train.en"}
data.valid_fraction = 0.1
train.threads = 1
"""
    )


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a `seqloom` that starts at once."""
    with warm_seqloom(tmp_path_factory.mktemp("warm")) as folder:
        yield folder


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.long) if path.stem in LONG else path for path in RUN_HERE],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Path) -> None:
    monkeypatch.chdir(tmp_path)
    folders = (commands, Path(sys.executable).parent, os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    if path.name == "README.md":
        write_users_files(tmp_path)
    namespace: dict[str, object] = {"__name__": "__document__"}
    for language, code, printed in blocks(path):
        match language:
            case "sh":
                done = subprocess.run(["bash", "-c", PRELUDE + code], capture_output=True, text=True)
                assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
            case "python":
                with redirect_stdout(io.StringIO()) as out:
                    exec(compile(code, f"<a block of {path.name}>", "exec"), namespace)  # no file: no source to look up
                assert printed in (None, out.getvalue()), code
            case "toml" if "task =" in code:
                assert parse(code)
            case "toml":  # a part of a configuration
                assert tomllib.loads(code)
            case "text" | "json" | "diff":
                pass
            case _:
                pytest.fail(f"a block in {path.name} says no language that this test knows: {language!r}")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.name)
def test_chapters_ask_show_and_let_try(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(path.name[:2])}. ")
    assert text.count("**The question.**") == 1
    assert "](../lab/" in text, "a picture made by the lab"
    solutions = re.findall(r"<details>\n<summary>Solution</summary>\n\n(.*?)\n\n</details>", text, re.DOTALL)
    assert len(solutions) == 2
    assert all("```python\n" in one for one in solutions)
    ways = [other.name for other in CHAPTERS if abs(int(other.name[:2]) - int(path.name[:2])) == 1]
    assert all(f"]({way})" in text for way in ways), "the chapters before and after it"


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "course").glob("*.md")), ids=lambda p: p.name)
def test_the_course_names_files_that_exist(path: Path) -> None:
    for file in re.findall(r"`(\w+/(?:\w+\.py)?)`", path.read_text(encoding="utf-8")):
        assert (ROOT / "src" / "seqloom" / file).exists(), file


def test_claims_quote_the_pages_of_the_lab() -> None:
    """Numbers of a row that names a page of the lab stand on that page; where the lab is run again, so is this list."""
    claims = ROOT / "docs" / "course" / "claims.md"
    rows = [
        row for row in claims.read_text(encoding="utf-8").splitlines() if "](../lab/" in row and row.startswith("|")
    ]
    assert len(rows) > 20
    for row in rows:
        pages = [claims.parent / page for page in re.findall(r"\]\((\.\./lab/\w+\.md)\)", row)]
        found = " ".join(page.read_text(encoding="utf-8") for page in pages)
        *_, verdict, _ = row.split("|")
        for number in re.findall(r"\d+\.\d+(?:e-\d+)?", verdict.partition("; on Multi30k")[0]):
            assert number in found, f"{number} in {row}"
