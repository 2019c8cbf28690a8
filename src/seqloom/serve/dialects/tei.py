"""The dialect of Text Embeddings Inference (github.com/huggingface/text-embeddings-inference).

/embed, /similarity, /predict, /rerank, /tokenize and /info; /health and /metrics are the server's own. A long text is
read in pieces, whatever `truncate` says, and nothing is cut off.
"""

from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from seqloom import __version__
from seqloom.predict.classify import count_columns
from seqloom.predict.results import Classification, Quantity
from seqloom.serve.dialects.base import Dialect
from seqloom.serve.faults import RefusalError
from seqloom.serve.service import Ask, Service


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    truncate: bool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = None
    prompt_name: None = None
    model: str | None = None


class EmbedFields(_Fields):
    """What /embed takes."""

    inputs: str | list[str]
    normalize: bool | None = True
    dimensions: None = None


class PredictFields(_Fields):
    """What /predict takes: a text, a pair, or a list of these."""

    inputs: str | list[str] | list[list[str]]
    raw_scores: Literal[False] | None = None


class RerankFields(_Fields):
    """What /rerank takes."""

    query: str
    texts: list[str]
    raw_scores: bool | None = None
    return_text: bool | None = None


class Compared(BaseModel):
    """A sentence, and others to compare it with."""

    source_sentence: str
    sentences: list[str]


class SimilarityFields(_Fields):
    """What /similarity takes."""

    inputs: Compared
    parameters: dict[str, Any] | None = None


class TokenizeFields(_Fields):
    """What /tokenize takes."""

    inputs: str | list[str]
    add_special_tokens: bool | None = True


def routes(service: Service) -> APIRouter:
    """What clients of TEI ask."""
    router = APIRouter(tags=["TEI"])

    @router.post("/embed")
    async def embed(fields: EmbedFields) -> list[list[float]]:
        """A vector for each text, of length 1 unless told otherwise."""
        texts = [fields.inputs] if isinstance(fields.inputs, str) else fields.inputs
        options = {"normalise": fields.normalize is not False}
        answer = await service.ask(Ask("embed", texts, options, fields.model))
        return [one.vector.tolist() for one in answer.results]

    @router.post("/similarity")
    async def similarity(fields: SimilarityFields) -> list[float]:
        """The cosine between a sentence and each other one."""
        return await compare(service, fields.inputs, fields.model)

    @router.post("/predict")
    async def predict(fields: PredictFields) -> Any:
        """All labels of a text, or of each text, the most probable first."""
        given = fields.inputs
        alone = isinstance(given, str)
        if (
            isinstance(given, list)
            and len(given) == 2
            and isinstance(given[0], str)
            and reads_pairs(service, fields.model)
        ):
            given, alone = [given], True
        texts: list[Any] = [given] if isinstance(given, str) else [_read_item(one) for one in given]
        answer = await service.ask(Ask("classify", texts, {}, fields.model))
        found = [list_labels(one) for one in answer.results]
        return found[0] if alone else found

    @router.post("/rerank")
    async def rerank(fields: RerankFields) -> list[dict[str, Any]]:
        """Texts in the order of their fitness for a query, by a model that gives a number to a pair of texts."""
        pairs = [(fields.query, text) for text in fields.texts]
        answer = await service.ask(Ask("classify", pairs, {}, fields.model))
        if any(not isinstance(one, Quantity) for one in answer.results):
            raise RefusalError("rerank: needs a model that gives pairs of texts a number; this one chooses a label")
        scores = [float(one.value or 0.0) for one in answer.results]
        if not fields.raw_scores:
            scores = [float(1 / (1 + np.exp(-score))) for score in scores]
        ranked = sorted(range(len(scores)), key=lambda index: -scores[index])
        written: list[dict[str, Any]] = [{"index": index, "score": scores[index]} for index in ranked]
        if fields.return_text:
            written = [{**one, "text": fields.texts[one["index"]]} for one in written]
        return written

    @router.post("/tokenize")
    async def tokenize(fields: TokenizeFields) -> list[list[dict[str, Any]]]:
        """The tokens of each text."""
        texts = [fields.inputs] if isinstance(fields.inputs, str) else fields.inputs
        service.limits.check_texts(texts)
        predictor = service.models.find("embed", fields.model).predictor
        before, after = predictor.frames[next(iter(predictor.frames))]

        def write(id: int, text: str, span: tuple[int, int] | None) -> dict[str, Any]:
            start, stop = (None, None) if span is None else span
            return {"id": id, "text": text, "special": span is None, "start": start, "stop": stop}

        def read(text: str) -> list[dict[str, Any]]:
            found = predictor.tokenizer.encode(text)
            own = [
                write(id, text[start:end], (start, end))
                for id, (start, end) in zip(found.ids, found.offsets, strict=True)
            ]
            if fields.add_special_tokens is False:
                return own
            name = predictor.tokenizer.token
            return [*(write(id, name(id), None) for id in before), *own, *(write(id, name(id), None) for id in after)]

        return await service.compute(lambda: [read(text) for text in texts])  # type: ignore[no-any-return]

    @router.get("/info")
    async def info() -> dict[str, Any]:
        """What is served, and how much a request may hold."""
        first = next(iter(service.models))
        kind: dict[str, Any] = {"embedding": {"pooling": "mean"}}
        if "classify" in first.verbs:
            kind = {"classifier": {"id2label": dict(enumerate(first.predictor.labels))}}
        return {
            "model_id": first.name,
            "model_dtype": "float32",
            "model_type": kind,
            "max_input_length": first.predictor.longest,
            "max_client_batch_size": service.limits.items,
            "max_concurrent_requests": service.batcher.limit,
            "version": __version__,
        }

    return router


def _read_item(item: Any) -> Any:
    if isinstance(item, str):
        return item
    if len(item) == 1:
        return item[0]
    if len(item) != 2:
        raise RefusalError("inputs: an item is a text, or a list of one or two texts")
    return tuple(item)


def reads_pairs(service: Service, model: str | None) -> bool:
    """Whether a classifier takes two texts at once."""
    return count_columns(service.models.find("classify", model).predictor)[1] == 2


async def compare(service: Service, given: Compared, model: str | None) -> list[float]:
    """The cosine between a sentence and each other one."""
    answer = await service.ask(Ask("embed", [given.source_sentence, *given.sentences], {"normalise": True}, model))
    first, *others = [one.vector for one in answer.results]
    return [float(first @ other) for other in others]


def list_labels(found: Classification | Quantity) -> list[dict[str, Any]]:
    """All labels with their probabilities, the most probable first."""
    if isinstance(found, Quantity):
        return [{"label": "LABEL_0", "score": found.value}]
    ranked = sorted((found.probabilities or {}).items(), key=lambda pair: -pair[1])
    return [{"label": label, "score": score} for label, score in ranked]


def say(status: int, sentence: str) -> dict[str, Any]:
    """A refusal as clients of TEI read it."""
    kinds = {413: "Validation", 422: "Validation", 400: "Validation", 429: "Overloaded", 503: "Unhealthy"}
    return {"error": sentence, "error_type": kinds.get(status, "Backend")}


PATHS = ("/embed", "/similarity", "/predict", "/rerank", "/tokenize", "/info")
DIALECT = Dialect("tei", PATHS, routes, say)
