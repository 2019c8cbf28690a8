"""The site is built without a warning, every link on it leads somewhere, and nothing on it comes from elsewhere."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

DOCS = Path(__file__).parents[2] / "docs"
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "object": "data", "source": "src"}
"""What a browser fetches by itself, and the attribute that says from where."""


class Page(HTMLParser):
    """The links, the places and the loaded files of a page, and the text of it that is left as TeX."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.equations = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.equations += tag == "math"
        if values.get("id"):
            self.places.add(str(values["id"]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag in LOADED and values.get(LOADED[tag]):
            self.loaded.append(str(values[LOADED[tag]]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        f"{folder}/trees",
        str(DOCS),
        f"{folder}/html",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_document_is_a_page(site: Path) -> None:
    for document in DOCS.rglob("*.md"):
        assert (site / document.relative_to(DOCS)).with_suffix(".html").exists(), document


def test_links_lead_to_pages_and_places(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("https", "mailto"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].places | {""}, f"{path.name}: {link}"


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for file in page.loaded:
            parts = urlsplit(file)
            assert parts.scheme in ("", "data"), f"{path.name}: {file}"
            assert not parts.netloc, f"{path.name}: {file}"
            assert parts.scheme or (path.parent / unquote(parts.path)).exists(), f"{path.name}: {file}"
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert "url(http" not in text, style.name
        assert "@import" not in text, style.name


def test_equations_are_drawn_by_the_browser(pages: dict[Path, Page]) -> None:
    chapters = {path: page for path, page in pages.items() if path.parent.name == "course" and path.name[0].isdigit()}
    assert len(chapters) == 10
    for path, page in chapters.items():
        assert page.equations, path.name
        assert "$$" not in path.read_text(encoding="utf-8"), path.name
