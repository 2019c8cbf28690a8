"""The server of `seqloom explore`: the page, and what a trace answers to it.

Every address of the model begins with /seqloom/v1 and needs the token (`guard.py`). Answers are JSON, or safetensors
where they are many numbers; every fault is JSON, too: {"error": "a sentence"}. The only files that are sent are those
of the page, by a list made at the start.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from safetensors.torch import save
from torch import Tensor

from seqloom.errors import DataError, SeqloomError
from seqloom.lens.trace import Trace
from seqloom.page.bundle import served_page, static_files
from seqloom.serve.guard import API, Guard
from seqloom.serve.runs import run_routes
from seqloom.serve.subject import Subject
from seqloom.serve.traces import BusyError, GoneError, Request
from seqloom.serve.words import word_routes

MAX_RESPONSE = 2_000_000
"""Bytes of numbers in one answer."""
Method = Literal["conserved", "gradient", "integrated", "occlusion"]
_KEY = re.compile(r"[\w.]+: ")
_UNFORESEEN = "something went wrong that Seqloom did not foresee; the terminal says what"
_TYPES = {"js": "text/javascript", "css": "text/css"}


def make_app(subject: Subject, *, port: int, token: str) -> Guard:
    """The application, with its guard around it."""
    return Guard(make_explorer(subject), port=port, token=token)


def make_explorer(subject: Subject) -> FastAPI:
    """The page and what it asks, for whoever may ask at all."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    for kind, status in {SeqloomError: 400, GoneError: 404, BusyError: 503}.items():
        app.add_exception_handler(kind, lambda _, error, status=status: _say(str(error), status))
    app.add_exception_handler(RequestValidationError, lambda _, error: _say(_explain(error), 422))
    app.add_exception_handler(Exception, lambda *_: _say(_UNFORESEEN, 500))  # the terminal has the traceback
    app.add_exception_handler(404, lambda *_: _say("there is nothing at this address", 404))
    app.include_router(page_routes())
    app.include_router(_model_routes(subject), prefix=API)
    app.include_router(_trace_routes(subject), prefix=API)
    app.include_router(word_routes(subject), prefix=API)
    app.include_router(run_routes(subject), prefix=API)
    return app


def _say(sentence: str, status: int) -> JSONResponse:
    """A fault as the page shows it; the name of a key stays as it is."""
    named = _KEY.match(sentence) is not None
    return JSONResponse({"error": sentence if named else f"{sentence[:1].upper()}{sentence[1:]}"}, status)


def _explain(error: RequestValidationError) -> str:
    """The first fault of a request, as a sentence."""
    fault = error.errors()[0]
    place = ".".join(str(part) for part in fault["loc"][1:])
    return f"{place or 'the request'}: {fault['msg'][:1].lower()}{fault['msg'][1:]}"


def page_routes(*, root: bool = True) -> APIRouter:
    """The page at the root, where it is wanted, and its files."""
    routes, files = APIRouter(), static_files()

    def page() -> HTMLResponse:
        return HTMLResponse(served_page())

    if root:
        routes.get("/")(page)

    @routes.get("/static/{name:path}")
    def static(name: str) -> Response:
        kind = _TYPES.get(name.rpartition(".")[2])
        if kind is None or name not in files:
            return _say("there is nothing at this address", 404)
        return Response(files[name], media_type=kind)

    return routes


def _model_routes(subject: Subject) -> APIRouter:
    """What is explored, and traces of it."""
    routes = APIRouter()

    @routes.get("/model")
    def model() -> dict[str, Any]:
        return subject.describe()

    @routes.post("/trace")
    def trace(request: Request) -> dict[str, Any]:
        return subject.traces.make(request).describe()

    @routes.get("/trace/{id}")
    def again(id: str) -> dict[str, Any]:
        return subject.traces.get(id).describe()

    @routes.post("/trace/{id}/change")
    def change(id: str, change: dict[str, Any]) -> dict[str, Any]:
        return subject.traces.change(id, change).describe()

    return routes


def _trace_routes(subject: Subject) -> APIRouter:
    """What a trace says, computed when it is asked, one answer at a time."""

    def wait() -> Iterator[None]:
        with subject.traces.wait():
            yield

    routes = APIRouter(dependencies=[Depends(wait)])

    def find(id: str) -> Trace:
        return subject.traces.get(id).trace

    @routes.get("/trace/{id}/grid")
    def grid(id: str, stack: str, size: Annotated[int, Query(ge=8, le=256)] = 96) -> Response:
        found = find(id)
        thumbnails = found.grid(stack, size)
        sites = [site for one in found.stacks if one.name == stack for layer in one.layers for site in layer.sites]
        return _send({"grid": thumbnails}, sites=sites)

    @routes.get("/trace/{id}/mixing")
    def mixing(id: str, site: str, norm: bool = False, rows: str | None = None) -> Response:
        weights = find(id).mixing(site, norm=norm)
        return _send({"weights": weights[_read_range(rows, len(weights))]})

    @routes.get("/trace/{id}/arithmetic")
    def arithmetic(id: str, site: str, row: int, column: int) -> Any:
        return find(id).arithmetic(site, row, column).to_json()

    @routes.get("/trace/{id}/lens")
    def lens(id: str, position: int, top: Annotated[int, Query(ge=1, le=100)] = 5) -> Any:
        return {"layers": [asdict(layer) for layer in find(id).lens(position, top)]}

    @routes.get("/trace/{id}/contributions")
    def contributions(id: str, position: int, token: str | None = None, against: str | None = None) -> Any:
        return find(id).contributions(position, _read_token(token), _read_token(against)).to_json()

    @routes.get("/trace/{id}/attribution")
    def attribution(
        id: str, position: int, token: str | None = None, against: str | None = None, method: Method = "conserved"
    ) -> Any:
        found = find(id).attribute(position, _read_token(token), method=method, against=_read_token(against))
        return found.to_json()

    @routes.get("/trace/{id}/search")
    def search(id: str) -> Any:
        return find(id).search.to_json()

    @routes.get("/trace/{id}/roles")
    def roles(id: str, stack: str) -> Any:
        return find(id).roles(stack).to_json()

    @routes.get("/trace/{id}/alignment")
    def alignment(id: str) -> Any:
        return find(id).alignment().to_json()

    @routes.get("/trace/{id}/compare")
    def compare(id: str, other: Annotated[str, Query(alias="with")]) -> Any:
        changed = find(id)
        return changed.compare(find(other), top=len(changed.sites)).to_json()

    @routes.get("/trace/{id}/page")
    def page(id: str, state: str = "") -> HTMLResponse:
        return HTMLResponse(subject.save(subject.traces.get(id), dict(parse_qsl(state))))

    return routes


def _read_range(text: str | None, count: int) -> slice:
    """Rows "a:b" of a map."""
    if text is None:
        return slice(0, count)
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last) <= count):
        raise DataError(f'rows: must be "a:b" with a < b ≤ {count}')
    return slice(int(first), int(last))


def _read_token(text: str | None) -> int | str | None:
    """A token by its id, a label by its name."""
    return int(text) if text is not None and text.isdecimal() else text


def _send(tensors: dict[str, Tensor], **metadata: Any) -> Response:
    """Numbers as safetensors; what is said about them is JSON in its header."""
    data = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    if sum(tensor.nbytes for tensor in data.values()) > MAX_RESPONSE:
        raise DataError(f"the answer is larger than {MAX_RESPONSE:,} bytes; ask for fewer rows at once")
    about = {name: json.dumps(value, ensure_ascii=False) for name, value in metadata.items()}
    return Response(save(data, about), media_type="application/octet-stream")
