"""OpenAI's dialect: /v1/models, /v1/completions (stream, echo, logprobs, n, stop, seed) and /v1/embeddings.

An option that we do not have is refused, not ignored. Completions are drawn at the given temperature, 1 by default, and
the most probable ones at 0.
"""

import base64
import json
import secrets
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from seqloom.errors import SeqloomError
from seqloom.predict.score import Alternatives, find_alternatives, find_lead
from seqloom.predict.search import spell_token
from seqloom.serve.continuation import Choice, Continuation, Part, continue_texts
from seqloom.serve.dialects.base import Dialect
from seqloom.serve.faults import RefusalError
from seqloom.serve.log import current
from seqloom.serve.service import Ask, Service
from seqloom.serve.work import VerbWork

_STARTED = int(time.time())


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str
    user: str | None = None


class CompletionRequest(_Fields):
    """What /v1/completions takes."""

    prompt: str | list[str] = ""
    max_tokens: Annotated[int, Field(ge=0)] | None = 16
    temperature: Annotated[float, Field(ge=0, le=100)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    n: Annotated[int, Field(ge=1)] | None = 1
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = False
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    seed: int | None = None
    best_of: int | None = None
    presence_penalty: float | None = 0
    frequency_penalty: float | None = 0
    logit_bias: dict[str, float] | None = None
    suffix: str | None = None


class EmbeddingRequest(_Fields):
    """What /v1/embeddings takes."""

    input: str | list[str]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = None


def routes(service: Service) -> APIRouter:
    """What OpenAI's clients ask."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    def describe(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": _STARTED, "owned_by": "seqloom"}

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """The models that are served."""
        return {"object": "list", "data": [describe(model.name) for model in service.models]}

    @router.get("/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        """One of them."""
        return describe(service.models.find("embed", name).name)

    @router.post("/completions")
    async def complete(request: CompletionRequest) -> Response:
        """Continue prompts."""
        return await _complete(service, request)

    @router.post("/embeddings")
    async def embed(request: EmbeddingRequest) -> Response:
        """Vectors of texts."""
        texts = [request.input] if isinstance(request.input, str) else request.input
        answer = await service.ask(Ask("embed", texts, {}, request.model))
        vectors = [np.asarray(one.vector, dtype="<f4") for one in answer.results]
        if request.dimensions is not None and any(len(vector) != request.dimensions for vector in vectors):
            raise RefusalError(f"dimensions: the vectors of this model have {len(vectors[0])}; leave it out")
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": (
                    base64.b64encode(vector.tobytes()).decode()
                    if request.encoding_format == "base64"
                    else vector.tolist()
                ),
            }
            for index, vector in enumerate(vectors)
        ]
        tokenizer = answer.model.predictor.tokenizer
        tokens = sum(map(len, await service.compute(tokenizer.encode_batch, texts)))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": answer.model.name, "usage": usage})

    return router


async def _complete(service: Service, request: CompletionRequest) -> Response:
    prompts = [request.prompt] if isinstance(request.prompt, str) else request.prompt
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    _refuse_unknown(request, stops)
    count, drawn = request.n or 1, bool(1.0 if request.temperature is None else request.temperature)
    options: dict[str, Any] = {"max_length": max(1, 16 if request.max_tokens is None else request.max_tokens)}
    if drawn:
        options |= {
            "sample": True,
            "nbest": count,
            "temperature": 1.0 if request.temperature is None else request.temperature,
        }
        options["seed"] = secrets.randbelow(2**31) if request.seed is None else request.seed
        if request.top_p is not None and request.top_p < 1:
            options["top_p"] = request.top_p
    elif count > service.limits.answers:
        raise RefusalError(f"n: {count} is more than the {service.limits.answers} that this server allows")
    ask = Ask("generate", prompts, options, request.model)
    found = await continue_texts(service, ask, stops)
    _refuse_cut(found, prompts)
    writer = _Writer(service, request, prompts, found, copies=1 if drawn else count)
    parts = found.begin() if request.max_tokens != 0 else None
    if request.stream:
        return StreamingResponse(writer.stream(parts), media_type="text/event-stream")
    if parts is not None:
        async for _ in parts:
            pass
    return JSONResponse(await writer.write())


def _refuse_unknown(request: CompletionRequest, stops: list[str]) -> None:
    for name in ("presence_penalty", "frequency_penalty", "logit_bias", "suffix"):
        if getattr(request, name):
            raise RefusalError(f"{name}: this server does not have it; leave it out")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise RefusalError("best_of: this server does not have it; leave it out")
    if any(not stop for stop in stops):
        raise RefusalError("stop: holds an empty text; leave it out")
    if request.stream and (request.echo or request.logprobs is not None):
        raise RefusalError("stream: echo and logprobs need the whole text; leave stream out")


def _refuse_cut(found: Continuation, prompts: list[str]) -> None:
    """A prompt that is too long is refused here: its first part would not be read."""
    lead, tokenizer = len(find_lead(found.predictor)), found.predictor.tokenizer
    for prompt, line in zip(prompts, found.work.lines, strict=True):
        given = lead + len(tokenizer.encode(prompt).ids) if prompt.strip() else 0
        if given > 1 + len(line.request.prefix):
            raise RefusalError(
                f"the prompt has {given} tokens, but the model reads {found.predictor.longest}, with the answer; "
                "shorten it, or ask for fewer tokens"
            )


class _Writer:
    """Answers in OpenAI's form."""

    def __init__(
        self, service: Service, request: CompletionRequest, prompts: list[str], found: Continuation, copies: int
    ) -> None:
        self._service, self._request, self._prompts, self._found = service, request, prompts, found
        self._copies = copies
        """How many choices are the same: the most probable continuation is always the same."""
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": found.name,
        }

    async def write(self) -> dict[str, Any]:
        """The whole answer."""
        logprobs: list[Any] = [None] * len(self._found.choices)
        if self._request.logprobs is not None:
            logprobs = await self._find_logprobs()
        choices: list[dict[str, Any]] = []
        for choice, probabilities in zip(self._found.choices, logprobs, strict=True):
            lead = self._prompts[choice.line] if self._request.echo else ""
            for _ in range(self._copies):
                choices.append(self._choose(len(choices), lead + choice.text, choice.reason or "length", probabilities))
        return {**self._head, "choices": choices, "usage": self._count()}

    async def stream(self, parts: AsyncIterator[Part] | None) -> AsyncIterator[str]:
        """Events, each with a part of a choice; the last one is [DONE]."""
        try:
            if parts is not None:
                async for part in parts:
                    for copy in range(self._copies):
                        yield _event({**self._head, "choices": [self._choose_part(part, copy)]})
            if (self._request.stream_options or {}).get("include_usage"):
                yield _event({**self._head, "choices": [], "usage": self._count()})
        except SeqloomError as error:
            yield _event(say(getattr(error, "status", 400), str(error)))
        yield "data: [DONE]\n\n"

    def _choose_part(self, part: Part, copy: int) -> dict[str, Any]:
        index = self._found.choices.index(part.choice) * self._copies + copy
        return self._choose(index, part.text, part.choice.reason if part.done else None, None)

    def _choose(self, index: int, text: str, reason: str | None, logprobs: Any) -> dict[str, Any]:
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}

    def _count(self) -> dict[str, int]:
        prompt, found = self._found.count_prompt(), self._found.count_found() * self._copies
        return {"prompt_tokens": prompt, "completion_tokens": found, "total_tokens": prompt + found}

    async def _find_logprobs(self) -> list[dict[str, Any]]:
        """The log-probabilities of each choice: one more pass over prompt and answer."""
        predictor, top = self._found.predictor, self._request.logprobs or 0
        lines = [self._found.work.lines[choice.line].request for choice in self._found.choices]
        rows = [
            (line.start, *line.prefix, *choice.ids) for line, choice in zip(lines, self._found.choices, strict=True)
        ]
        work = VerbWork(predictor, ("alternatives", top), rows, partial(find_alternatives, top=top))
        found = await self._service.batcher.run(work, current.get().client)
        written = []
        for choice, line, row, one in zip(self._found.choices, lines, rows, found, strict=True):
            assert isinstance(one, Alternatives)
            written.append(self._write_logprobs(choice, len(line.prefix), row, one))
        return written

    def _write_logprobs(self, choice: Choice, before: int, row: tuple[int, ...], found: Alternatives) -> dict[str, Any]:
        tokenizer, top = self._found.predictor.tokenizer, self._request.logprobs or 0
        best = [{spell_token(tokenizer, id): score for id, score in pairs} for pairs in found.best]
        scores: list[float | None] = [*found.scores[:before], *choice.scores]
        pieces = list(choice.pieces)
        offset = 0
        if self._request.echo:
            prompt = self._prompts[choice.line]
            read = tokenizer.encode(prompt)
            lead = len(find_lead(self._found.predictor))
            names = [prompt[start:end] for start, end in read.offsets]
            scores = [*([None] if not lead and names else []), *found.scores[max(0, lead - 1) : before], *choice.scores]
            best = best[max(0, lead - 1) :]
            listed: list[Any] = [*([None] if not lead and names else []), *best]
            starts, offset = [start for start, _ in read.offsets], len(prompt)
            pieces = [*names, *pieces]
        else:
            scores, listed, starts = list(choice.scores), best[before:], []
        for piece in choice.pieces:
            starts.append(offset)
            offset += len(piece)
        return {
            "tokens": pieces,
            "token_logprobs": scores,
            "top_logprobs": listed if top else None,
            "text_offset": starts,
        }


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def say(status: int, sentence: str) -> dict[str, Any]:
    """A refusal as OpenAI's clients read it."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    codes = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": sentence, "type": kind, "param": None, "code": codes.get(status)}}


DIALECT = Dialect("openai", ("/v1/",), routes, say)
