"""Ollama's dialect: /api/generate and /api/embed, /api/tags, /api/show and /api/version; streams are lines of JSON.

As there, texts are drawn at a temperature of 0.8 among the 40 most probable tokens with 0.9 of the probability, unless
the options say otherwise; a temperature of 0 takes the most probable. As there, a request is JSON whatever its content
type, since examples for curl give none.
"""

import json
import secrets
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from seqloom import __version__
from seqloom.errors import SeqloomError
from seqloom.serve.continuation import Continuation, Part, continue_texts
from seqloom.serve.dialects.base import Dialect, say_plainly
from seqloom.serve.faults import RefusalError
from seqloom.serve.fields import describe_body, read_object
from seqloom.serve.models import Served
from seqloom.serve.service import Ask, Service


class GenerateOptions(BaseModel):
    """The options of a search, by Ollama's names."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    temperature: Annotated[float, Field(ge=0)] = 0.8
    top_k: Annotated[int, Field(ge=0)] = 40
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: int | None = None
    num_predict: int = 128
    repeat_penalty: Annotated[float, Field(gt=0)] = 1.0
    stop: list[str] = Field([], max_length=16)
    num_ctx: int | None = None
    num_thread: int | None = None
    num_gpu: int | None = None


class GenerateFields(BaseModel):
    """What /api/generate takes."""

    model_config = ConfigDict(extra="ignore")

    model: str
    prompt: str = ""
    stream: bool | None = True
    options: GenerateOptions | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    format: Any = None
    images: Any = None
    think: Any = None
    context: Any = None


class EmbedFields(BaseModel):
    """What /api/embed takes."""

    model_config = ConfigDict(extra="ignore")

    model: str
    input: str | list[str]
    dimensions: int | None = None


class OldEmbedFields(BaseModel):
    """What /api/embeddings takes."""

    model_config = ConfigDict(extra="ignore")

    model: str
    prompt: str


class ShowFields(BaseModel):
    """What /api/show takes."""

    model_config = ConfigDict(extra="ignore")

    model: str


def routes(service: Service) -> APIRouter:
    """What Ollama's clients ask."""
    router = APIRouter(prefix="/api", tags=["Ollama"])

    @router.get("/version")
    async def version() -> dict[str, str]:
        """The version of the server."""
        return {"version": __version__}

    @router.get("/tags")
    async def tags() -> dict[str, Any]:
        """The models that are served."""
        return {"models": [{"name": model.name, "model": model.name, **_describe(model)} for model in service.models]}

    @router.post("/show", openapi_extra=describe_body(ShowFields))
    async def show(request: Request) -> dict[str, Any]:
        """One of them."""
        fields = await read_object(request, ShowFields)
        model = _find(service, "embed", fields.model)
        kinds = {"generate": "completion", "embed": "embedding"}
        capabilities = [kinds[verb] for verb in model.verbs if verb in kinds]
        return {**_describe(model), "model_info": {}, "capabilities": capabilities}

    @router.post("/generate", openapi_extra=describe_body(GenerateFields))
    async def generate(request: Request) -> Response:
        """Continue a prompt."""
        return await _generate(service, await read_object(request, GenerateFields))

    @router.post("/embed", openapi_extra=describe_body(EmbedFields))
    async def embed(request: Request) -> dict[str, Any]:
        """Vectors of texts, of length 1."""
        fields = await read_object(request, EmbedFields)
        started, texts = time.perf_counter_ns(), [fields.input] if isinstance(fields.input, str) else fields.input
        model = _find(service, "embed", fields.model)
        if fields.dimensions is not None:
            raise RefusalError("dimensions: the vectors are as wide as the model; leave it out")
        answer = await service.ask(Ask("embed", texts, {"normalise": True}, model.name))
        vectors = [one.vector.tolist() for one in answer.results]
        took = time.perf_counter_ns() - started
        return {"model": fields.model, "embeddings": vectors, "total_duration": took, "load_duration": 0}

    @router.post("/embeddings", openapi_extra=describe_body(OldEmbedFields))
    async def embed_one(request: Request) -> dict[str, Any]:
        """The vector of a text."""
        fields = await read_object(request, OldEmbedFields)
        model = _find(service, "embed", fields.model)
        answer = await service.ask(Ask("embed", [fields.prompt], {}, model.name))
        return {"embedding": answer.results[0].vector.tolist()}

    @router.post("/chat")
    async def chat() -> None:
        """Refused: nobody taught these models to chat."""
        raise RefusalError("the models here continue texts, they do not chat; use /api/generate")

    return router


def _find(service: Service, verb: str, name: str) -> Served:
    """A model by its name; clients may add a tag, `latest`."""
    return service.models.find(verb, name.removesuffix(":latest"))


def _describe(model: Served) -> dict[str, Any]:
    weights = sum(one.numel() for one in model.predictor.peek().parameters())
    return {
        "modified_at": datetime.now(UTC).isoformat(),
        "size": 4 * weights,
        "digest": "",
        "details": {
            "parent_model": "",
            "format": "safetensors",
            "family": model.predictor.config.task,
            "families": [model.predictor.config.task],
            "parameter_size": f"{weights:,}",
            "quantization_level": "F32",
        },
    }


async def _generate(service: Service, fields: GenerateFields) -> Response:
    for name in ("suffix", "system", "template", "format", "images", "think", "context"):
        if getattr(fields, name):
            raise RefusalError(f"{name}: this server does not have it; leave it out")
    given = fields.options or GenerateOptions()
    model = _find(service, "generate", fields.model)
    options: dict[str, Any] = {"max_length": given.num_predict if given.num_predict > 0 else service.limits.tokens}
    if given.temperature:
        seed = secrets.randbelow(2**31) if given.seed is None else given.seed
        options |= {"sample": True, "temperature": given.temperature, "top_p": given.top_p, "seed": seed}
        options |= {"min_p": given.min_p} if given.min_p else {}
        options |= {"top_k": given.top_k} if given.top_k else {}
    if given.repeat_penalty != 1.0:
        options["repetition_penalty"] = given.repeat_penalty
    started = time.perf_counter_ns()
    found = await continue_texts(service, Ask("generate", [fields.prompt], options, model.name), given.stop)
    parts = found.begin()
    if fields.stream is not False:
        return StreamingResponse(_stream(fields.model, found, parts, started), media_type="application/x-ndjson")
    async for _ in parts:
        pass
    return JSONResponse(_end(fields.model, found, started, found.choices[0].text))


async def _stream(name: str, found: Continuation, parts: AsyncIterator[Part], started: int) -> AsyncIterator[str]:
    try:
        async for part in parts:
            if part.text:
                said = {"model": name, "created_at": _now(), "response": part.text, "done": False}
                yield json.dumps(said, ensure_ascii=False) + "\n"
        yield json.dumps(_end(name, found, started, ""), ensure_ascii=False) + "\n"
    except SeqloomError as error:
        yield json.dumps(say_plainly(400, str(error))) + "\n"


def _end(name: str, found: Continuation, started: int, text: str) -> dict[str, Any]:
    took = time.perf_counter_ns() - started
    return {
        "model": name,
        "created_at": _now(),
        "response": text,
        "done": True,
        "done_reason": found.choices[0].reason,
        "total_duration": took,
        "load_duration": 0,
        "prompt_eval_count": found.count_prompt(),
        "eval_count": found.count_found(),
        "eval_duration": took,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat()


DIALECT = Dialect("ollama", ("/api/",), routes, say_plainly)
