"""The page of a server at /, and the explorer of its models at /explore/NAME/, where that is wanted.

The explorer shows sentences of the training data, so it is there only with `--explore`, and only for who has a key.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, FastAPI
from fastapi.responses import Response

from seqloom.page.bundle import served_policy
from seqloom.serve.explore import make_explorer, page_routes
from seqloom.serve.subject import Subject

EXPLORE = "/explore/"
_TYPES = {"page.html": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def make_routes() -> APIRouter:
    """The page and its two files."""
    router = APIRouter(include_in_schema=False)

    def add(path: str, name: str) -> None:
        @router.get(path)
        async def send() -> Response:
            return Response(_read(name), media_type=_TYPES[name])

    for path, name in (("/", "page.html"), ("/page.js", "page.js"), ("/page.css", "page.css")):
        add(path, name)
    return router


def add_explorers(app: FastAPI, subjects: Mapping[str, Subject]) -> None:
    """The explorer of each model."""
    if subjects:
        app.include_router(page_routes(root=False), include_in_schema=False)
    for name, subject in subjects.items():
        app.mount(f"{EXPLORE}{name}", make_explorer(subject))


def find_policy(path: str) -> str:
    """The content security policy of an address."""
    return served_policy() if path.startswith((EXPLORE, "/static/")) else _POLICY


def is_public(path: str) -> bool:
    """Whether an address is a file of a page or what it links to, without a secret: who has no key may read it."""
    if path in ("/", "/page.js", "/page.css", "/seqloom/v1/openapi.json") or path.startswith("/static/"):
        return True
    return path.startswith(EXPLORE) and path.rstrip("/").count("/") == 2


@cache
def _read(name: str) -> bytes:
    return (files("seqloom.page") / "served" / name).read_bytes()
