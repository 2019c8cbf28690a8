"""Our own dialect: /seqloom/v1/… for every verb, with the options of Python and results as `--json` prints them.

    POST /seqloom/v1/translate  {"texts": ["Guten Morgen"], "beam": 5}
    → {"model": "de-en", "results": [{"line": 1, "text": "Good morning", "score": …, …}]}

`texts` is one text or a list. `generate` with "stream": true answers with lines of JSON: {"text": a part} as it is
found, then {"model", "results"}.
"""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, create_model

from seqloom.decode.greedy import Token
from seqloom.errors import SeqloomError
from seqloom.predict.generate import GrowingText
from seqloom.predict.search import list_options
from seqloom.serve.dialects.base import Dialect, say_plainly
from seqloom.serve.faults import RefusalError
from seqloom.serve.models import Served
from seqloom.serve.service import Answer, Ask, Service, write_plain

PREFIX = "/seqloom/v1"
Texts = str | list[str]
Pairs = str | list[str | tuple[str, str]]


class Request(BaseModel):
    """What all verbs take."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str | None = Field(None, description="The name of a model; needed where several can do this.")


def _add_search(name: str, **fields: Any) -> type[Request]:
    """A request with the options of a search."""
    options: dict[str, Any] = {
        one.name: (one.kind if one.default is None else one.kind | None, Field(None, description=one.about))
        for one in list_options()
    }
    made: type[Request] = create_model(name, __base__=Request, texts=(Texts, ...), **options, **fields)
    return made


TranslateRequest = _add_search(
    "TranslateRequest",
    source_language=(str | None, Field(None, description="Chooses the model, with target_language.")),
    target_language=(str | None, Field(None)),
    align=(bool | None, Field(None, description="Also find the source word of each target word.")),
    split=(
        Literal["sentence", "line"] | None,
        Field(None, description="Translate sentence by sentence, or as a whole."),
    ),
)
GenerateRequest = _add_search(
    "GenerateRequest",
    special_tokens=(bool | None, Field(None, description="Names of special tokens stand for these.")),
    stream=(bool, Field(False, description="Answer with lines of JSON as tokens are found; for one text.")),
)


class ClassifyRequest(Request):
    """Labels of texts, or of pairs of texts."""

    texts: Pairs
    shots: list[tuple[str, str]] | None = Field(None, max_length=1024)
    labels: list[str] | None = Field(None, max_length=1024)
    template: str | None = None
    separator: str | None = None


class TagRequest(Request):
    """Tags of the words of texts, or of lists of words."""

    texts: str | list[str | list[str]]
    legal: bool | None = None


class EmbedRequest(Request):
    """Vectors of texts or tokens."""

    texts: Texts
    level: Literal["text", "token"] | None = None
    pooling: Literal["mean", "cls", "max", "attention"] | None = None
    layer: Annotated[int, Field(ge=-1000, le=1000)] | Literal["all", "mix", "concat"] | None = None
    normalise: bool | None = None


class FillRequest(Request):
    """Candidates for masks."""

    texts: Texts
    top: Annotated[int, Field(ge=1, le=1000)] | None = None


class ScoreRequest(Request):
    """Probabilities of texts; for a translation model, of targets."""

    texts: Texts
    targets: Texts | None = None


def routes(service: Service) -> APIRouter:
    """The models, and a route for each verb."""
    router = APIRouter(prefix=PREFIX, tags=["seqloom"])

    @router.get("/models")
    async def models() -> dict[str, Any]:
        return {"models": [describe(model, service) for model in service.models]}

    async def answer(verb: str, request: Request) -> Response:
        ask = _read(verb, request)
        return JSONResponse(_write(await service.ask(ask)))

    @router.post("/translate")
    async def translate(request: TranslateRequest) -> Response:  # type: ignore[valid-type]
        return await answer("translate", request)

    @router.post("/generate")
    async def generate(request: GenerateRequest) -> Response:  # type: ignore[valid-type]
        if not request.stream:  # type: ignore[attr-defined]
            return await answer("generate", request)
        ask = _read("generate", request)
        if len(ask.texts) != 1 or ask.options.get("beam", 1) > 1 or ask.options.get("nbest", 1) > 1:
            raise RefusalError("stream: one answer to one text can be streamed; leave beam and nbest out")
        return StreamingResponse(await _stream(service, ask), media_type="application/x-ndjson")

    @router.post("/classify")
    async def classify(request: ClassifyRequest) -> Response:
        return await answer("classify", request)

    @router.post("/tag")
    async def tag(request: TagRequest) -> Response:
        return await answer("tag", request)

    @router.post("/embed")
    async def embed(request: EmbedRequest) -> Response:
        return await answer("embed", request)

    @router.post("/fill")
    async def fill(request: FillRequest) -> Response:
        return await answer("fill", request)

    @router.post("/score")
    async def score(request: ScoreRequest) -> Response:
        return await answer("score", request)

    return router


def describe(model: Served, service: Service) -> dict[str, Any]:
    """A model as a client is told of it."""
    return {
        "name": model.name,
        "task": model.predictor.config.task,
        "verbs": list(model.verbs),
        "languages": None if model.languages is None else list(model.languages),
        "labels": [label for label in model.predictor.labels if label],
        "longest": model.predictor.longest,
        "explore": f"/explore/{model.name}/" if model.name in service.explored else None,
    }


def _read(verb: str, request: Any) -> Ask:
    given = {name: value for name, value in request if value is not None}
    texts, model = given.pop("texts"), given.pop("model", None)
    given.pop("stream", None)
    items: list[Any] = [texts] if isinstance(texts, str) else list(texts)
    pair = None
    if "source_language" in given or "target_language" in given:
        pair = given.pop("source_language", ""), given.pop("target_language", "")
    targets = given.pop("targets", None)
    if targets is not None:
        wanted = [targets] if isinstance(targets, str) else targets
        if len(wanted) != len(items):
            raise RefusalError(f"{len(items)} texts but {len(wanted)} targets")
        items = list(zip(items, wanted, strict=True))
    return Ask(verb, items, given, model, pair)


def _write(answer: Answer) -> dict[str, Any]:
    results = [{"line": number, **write_plain(one)} for number, one in enumerate(answer.results, start=1)]
    return {"model": answer.model.name, "results": results}


async def _stream(service: Service, ask: Ask) -> AsyncIterator[str]:
    model, work = await service.prepare_search(ask)
    found = service.stream(work)
    growing = GrowingText(model.predictor, work.lines[0].request)

    async def write() -> AsyncIterator[str]:
        if prefix := ask.options.get("prefix"):
            yield _line({"text": prefix})
        try:
            async for part in found:
                if isinstance(part, Token):
                    if part.id not in work.plan.ends and (text := growing.add(part.id)):
                        yield _line({"text": text})
                    continue
                if text := growing.end():
                    yield _line({"text": text})
                yield _line(_write(Answer(model, part)))
        except SeqloomError as error:
            yield _line(say_plainly(400, str(error)))

    return write()


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


DIALECT = Dialect("seqloom", (f"{PREFIX}/",), routes, say_plainly)
