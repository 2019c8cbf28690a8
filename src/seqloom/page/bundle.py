"""The page as markup: served file by file, or everything in one file that opens from disk.

The modules import each other by bare names ("seqloom/dom"), and an import map in the markup says where these are: at
addresses of the server, or, in one file, in `data:` addresses. The map and the first line of script are the only inline
scripts, so a content security policy can name them by their hashes.
"""

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from seqloom.page.saved import Saved

_STATIC = files("seqloom.page") / "static"
_ENTRY = 'import "seqloom/app";'
_STYLES = ("style.css", "views.css", "runs.css")
STATIC_PREFIX = "/static/"
"""Where the server has the files."""


@cache
def static_files() -> dict[str, bytes]:
    """Every file of the page, by its name: "dom.js", "views/answer.js", "style.css". Nothing else is ever served."""

    def walk(folder: Traversable, prefix: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for entry in sorted(folder.iterdir(), key=lambda item: item.name):
            if entry.is_dir():
                found |= walk(entry, f"{prefix}{entry.name}/")
            elif entry.name.endswith((".js", ".css", ".html")):
                found[prefix + entry.name] = entry.read_bytes()
        return found

    return walk(_STATIC, "")


def served_page() -> str:
    """The markup of a page whose files come from the server."""
    modules = {_specifier(name): STATIC_PREFIX + name for name in _modules()}
    styles = [f'<link rel="stylesheet" href="{STATIC_PREFIX}{name}">' for name in _STYLES]
    return _page("\n".join([*styles, _import_map(modules)]), "")


def served_policy() -> str:
    """The content security policy of that page: its own files, and the two inline scripts by their hashes."""
    modules = {_specifier(name): STATIC_PREFIX + name for name in _modules()}
    scripts = " ".join(f"'sha256-{_digest(script)}'" for script in (_ENTRY, _mapping(modules)))
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def saved_page(saved: Saved) -> str:
    """One file with everything in it, which opens from disk and asks nobody for anything."""
    style = "".join(static_files()[name].decode() for name in _STYLES)
    modules = {_specifier(name): _embed(static_files()[name]) for name in _modules()}
    scripts = " ".join(f"'sha256-{_digest(script)}'" for script in (_ENTRY, _mapping(modules)))
    policy = f"default-src 'none'; script-src {scripts} data:; style-src 'sha256-{_digest(style)}'; img-src data: blob:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    head += _import_map(modules)
    return _page(head, f'<script type="application/gzip" id="seqloom-data">{saved.pack()}</script>')


def framed_page(saved: Saved, height: int = 720) -> str:
    """The same page in a frame, for a notebook: it can run its own scripts and save figures, and nothing else."""
    page = html.escape(saved_page(saved), quote=True)
    return (
        f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="Seqloom" '
        f'style="width: 100%; height: {height}px; border: 1px solid #ccc; border-radius: 6px"></iframe>'
    )


def _embed(module: bytes) -> str:
    return f"data:text/javascript;charset=utf-8;base64,{base64.b64encode(module).decode()}"


def _modules() -> list[str]:
    return [name for name in static_files() if name.endswith(".js")]


def _specifier(name: str) -> str:
    return f"seqloom/{name.removesuffix('.js')}"


def _mapping(modules: dict[str, str]) -> str:
    return json.dumps({"imports": modules}, sort_keys=True)


def _import_map(modules: dict[str, str]) -> str:
    return f'<script type="importmap">{_mapping(modules)}</script>'


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _page(head: str, data: str) -> str:
    text = static_files()["index.html"].decode()
    return text.replace("<!-- head -->", head).replace("<!-- data -->", data)
