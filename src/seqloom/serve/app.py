"""The application of `seqloom serve`: the routes of every dialect, what operators ask, and the gate around them."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from seqloom import __version__
from seqloom.errors import SeqloomError
from seqloom.serve.desk import Desk
from seqloom.serve.dialects import deepl, huggingface, libretranslate, ollama, openai, own, tei
from seqloom.serve.dialects.base import Dialect, say_plainly
from seqloom.serve.gate import Gate
from seqloom.serve.guard import App
from seqloom.serve.keys import Keys
from seqloom.serve.log import current
from seqloom.serve.page import add_explorers, make_routes
from seqloom.serve.service import Service
from seqloom.serve.subject import Subject

DIALECTS: tuple[Dialect, ...] = tuple(
    one.DIALECT for one in (own, libretranslate, openai, tei, huggingface, deepl, ollama)
)
_UNFORESEEN = "something went wrong that Seqloom did not foresee; the server's log says where"


def make_server(
    service: Service,
    *,
    keys: Keys | None = None,
    hosts: Collection[str] | None = None,
    explored: Mapping[str, Subject] = MappingProxyType({}),
) -> Gate:
    """The application, with its gate around it; `explored` are the models that can be looked into, by name."""
    return Gate(make_app(service, explored), service, write_refusal, keys=keys, hosts=hosts)


def make_app(service: Service, explored: Mapping[str, Subject] = MappingProxyType({})) -> App:
    """The application, which anyone may ask."""
    app = FastAPI(
        title="Seqloom", version=__version__, docs_url=None, redoc_url=None, openapi_url="/seqloom/v1/openapi.json"
    )
    app.include_router(operator_routes(service))
    for dialect in DIALECTS:
        app.include_router(dialect.routes(service))
    app.include_router(make_routes())
    add_explorers(app, explored)
    service.explored = tuple(explored)

    async def refuse(request: Request, error: Any) -> Response:
        status, wait = getattr(error, "status", 400), getattr(error, "wait", None)
        return respond(request.url.path, status, str(error), wait)

    async def explain(request: Request, error: Any) -> Response:
        return respond(request.url.path, 422, describe_fault(error))

    async def answer_other(request: Request, error: Any) -> Response:
        said = "there is nothing at this address" if error.status_code == 404 else str(error.detail)
        return respond(request.url.path, error.status_code, said)

    async def confess(request: Request, error: Exception) -> Response:
        service.report(error)
        return respond(request.url.path, 500, _UNFORESEEN)

    app.add_exception_handler(SeqloomError, refuse)
    app.add_exception_handler(RequestValidationError, explain)
    app.add_exception_handler(HTTPException, answer_other)

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        """Answer what nobody foresaw here: FastAPI would raise it again, and its words may hold a text."""
        begun = False

        async def note(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await app(scope, receive, note)
        except Exception as error:
            if begun:
                service.report(error)
            else:
                await (await confess(Request(scope), error))(scope, receive, send)

    return guarded


def find_dialect(path: str) -> Dialect | None:
    """The dialect that an address belongs to."""
    return next((dialect for dialect in DIALECTS if dialect.owns(path)), None)


def write_refusal(path: str, status: int, sentence: str) -> dict[str, Any]:
    """A refusal in the form that an address has."""
    dialect = find_dialect(path)
    return (say_plainly if dialect is None else dialect.say)(status, sentence)


def respond(path: str, status: int, sentence: str, wait: int | None = None) -> Response:
    """A refusal as an answer."""
    headers = {} if wait is None else {"Retry-After": str(wait)}
    current.get().noted["refused"] = status
    return JSONResponse(write_refusal(path, status, sentence), status, headers)


def describe_fault(error: RequestValidationError) -> str:
    """The first fault of a request, as a sentence; never what was given, which may be a text."""
    fault = error.errors()[0]
    if isinstance(error.body, bytes):
        return "the request is not said to be JSON; send it with Content-Type: application/json"
    place = ".".join(str(part) for part in fault["loc"][1:] if not str(part).startswith(("list[", "tuple[")))
    return f"{place or 'the request'}: {fault['msg'][:1].lower()}{fault['msg'][1:]}"


def operator_routes(desk: Desk) -> APIRouter:
    """What operators ask: health and numbers."""
    router = APIRouter(tags=["operators"])

    def state() -> Response:
        health = desk.health
        return JSONResponse(health, 200 if health["status"] == "ready" else 503)

    @router.get("/health")
    async def health() -> Response:
        """Whether the server takes requests; how many processes compute, with how many threads each."""
        return state()

    @router.get("/health/ready")
    async def ready() -> Response:
        """The same."""
        return state()

    @router.get("/health/live")
    async def live() -> dict[str, str]:
        """Whether the process answers at all."""
        return {"status": "live"}

    @router.get("/metrics")
    async def metrics() -> Response:
        """Numbers in Prometheus's text format."""
        text = await desk.write_metrics()
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
