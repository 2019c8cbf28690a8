"""The dialect of Hugging Face's `InferenceClient(model=ADDRESS)`: POST / for every task, or /models/NAME of several.

The body is {"inputs", "parameters"}; the model's task says what it means. A parameter that we do not have is refused.
/pipeline/feature-extraction/NAME has the vectors of any model.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from seqloom.serve.dialects.base import Dialect, say_plainly
from seqloom.serve.dialects.tei import Compared, compare, list_labels
from seqloom.serve.faults import RefusalError
from seqloom.serve.models import Served
from seqloom.serve.service import Ask, Service

Answering = Callable[[Service, Served, Any, dict[str, Any]], Awaitable[Any]]


class Fields(BaseModel):
    """What every task takes."""

    model_config = ConfigDict(extra="ignore")

    inputs: str | list[str] | Compared
    parameters: dict[str, Any] = {}
    stream: bool = False


class EmbedFields(BaseModel):
    """What the client's `feature_extraction` sends; a long text is read in pieces, so that nothing is cut off."""

    model_config = ConfigDict(extra="forbid")

    inputs: str | list[str]
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_direction: str | None = None


def routes(service: Service) -> APIRouter:
    """What Hugging Face's client asks."""
    router = APIRouter(tags=["Hugging Face"])

    @router.post("/")
    async def root(fields: Fields) -> Response:
        """The task of the only model."""
        models = list(service.models)
        if len(models) > 1:
            raise RefusalError(f"several models are served; ask /models/NAME: {', '.join(one.name for one in models)}")
        return JSONResponse(await _answer(service, models[0], fields))

    @router.post("/models/{name}")
    async def named(name: str, fields: Fields) -> Response:
        """The task of a model."""
        return JSONResponse(await _answer(service, service.models.find("embed", name), fields))

    @router.post("/pipeline/feature-extraction/{name}")
    async def embed(name: str, fields: EmbedFields) -> Response:
        """The vectors of texts, whatever the model was trained for."""
        options = {} if fields.normalize is None else {"normalise": fields.normalize}
        answer = await service.ask(Ask("embed", _list(fields.inputs), options, name))
        return JSONResponse([one.vector.tolist() for one in answer.results])

    return router


async def _answer(service: Service, model: Served, fields: Fields) -> Any:
    given = {name: value for name, value in fields.parameters.items() if value is not None}
    if fields.stream:
        raise RefusalError("stream: this dialect answers at once; /v1/completions streams")
    if isinstance(fields.inputs, Compared):
        return await compare(service, fields.inputs, model.name)
    answer: Answering = _VERBS.get(model.verbs[0], _embed)
    return await answer(service, model, fields.inputs, given)


def _take(given: dict[str, Any], known: dict[str, str | None]) -> dict[str, Any]:
    """The options of ours that parameters mean; None is one that makes no difference here."""
    for name in given:
        if name not in known:
            raise RefusalError(f"parameters.{name}: this server does not have it for this model; leave it out")
    return {ours: given[name] for name, ours in known.items() if ours is not None and name in given}


def _list(inputs: str | list[str]) -> list[str]:
    return [inputs] if isinstance(inputs, str) else inputs


async def _translate(service: Service, model: Served, inputs: str | list[str], given: dict[str, Any]) -> Any:
    languages = given.pop("src_lang", ""), given.pop("tgt_lang", "")
    if not model.translates(*languages):
        raise RefusalError(f"{model} does not translate {languages[0]} to {languages[1]}")
    generation = given.pop("generate_parameters", None) or {}
    options = _take(
        generation, {"num_beams": "beam", "max_new_tokens": "max_length", "length_penalty": "length_penalty"}
    )
    _take(given, {"clean_up_tokenization_spaces": None})
    answer = await service.ask(Ask("translate", _list(inputs), {"align": False, **options}, model.name))
    return [{"translation_text": one.text} for one in answer.results]


_GENERATION: dict[str, str | None] = {
    "max_new_tokens": "max_length",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "seed": "seed",
    "repetition_penalty": "repetition_penalty",
    "num_beams": "beam",
    "do_sample": "sample",
    "return_full_text": None,
    "details": None,
    "watermark": None,
    "stop": None,
    "decoder_input_details": None,
}


async def _generate(service: Service, model: Served, inputs: str | list[str], given: dict[str, Any]) -> Any:
    if given.get("details") or given.get("watermark") or given.get("stop") or given.get("decoder_input_details"):
        raise RefusalError("parameters: details, stop and watermark are not to be had here; see /v1/completions")
    options = _take(given, _GENERATION)
    if any(name in options for name in ("temperature", "top_k", "top_p")):
        options.setdefault("sample", True)
    texts = _list(inputs)
    answer = await service.ask(Ask("generate", texts, options, model.name))
    lead = texts if given.get("return_full_text") else [""] * len(texts)
    return [{"generated_text": before + one.text} for before, one in zip(lead, answer.results, strict=True)]


async def _classify(service: Service, model: Served, inputs: str | list[str], given: dict[str, Any]) -> Any:
    _take(given, {"top_k": None, "function_to_apply": None})
    if given.get("function_to_apply") not in (None, "softmax"):
        raise RefusalError("parameters.function_to_apply: this server gives probabilities (softmax)")
    answer = await service.ask(Ask("classify", _list(inputs), {}, model.name))
    return [list_labels(one)[: given.get("top_k")] for one in answer.results]


async def _tag(service: Service, model: Served, inputs: str | list[str], given: dict[str, Any]) -> Any:
    _take(given, {"aggregation_strategy": None, "ignore_labels": None})
    answer = await service.ask(Ask("tag", _list(inputs), {}, model.name))
    ignored = given.get("ignore_labels", [] if given.get("aggregation_strategy") == "none" else ["O"])
    found = [_list_entities(one, given.get("aggregation_strategy") == "none", ignored) for one in answer.results]
    return found[0] if isinstance(inputs, str) else found


def _list_entities(found: Any, words: bool, ignored: list[str]) -> list[dict[str, Any]]:
    """The spans of a text, with the mean probability of their words; its words, where tags mark no spans."""
    if found.spans and not words:
        entities = []
        for span in found.spans:
            inside = zip(found.offsets, found.probabilities, strict=True)
            own = [p for (start, end), p in inside if span.start <= start and end <= span.end]
            entities.append(
                {
                    "entity_group": span.label,
                    "score": sum(own) / len(own),
                    "word": span.text,
                    "start": span.start,
                    "end": span.end,
                }
            )
        return entities
    listed = zip(found.words, found.tags, found.probabilities, found.offsets, strict=True)
    return [
        {"entity": tag, "score": p, "word": word, "start": start, "end": end}
        for word, tag, p, (start, end) in listed
        if tag not in ignored
    ]


async def _fill(service: Service, model: Served, inputs: str | list[str], given: dict[str, Any]) -> Any:
    _take(given, {"top_k": None})
    answer = await service.ask(Ask("fill", _list(inputs), {"top": given.get("top_k", 5)}, model.name))
    tokenizer = model.predictor.tokenizer
    written = []
    for text, one in zip(_list(inputs), answer.results, strict=True):
        if len(one.masks) != 1:
            raise RefusalError(f"inputs: one mask is needed, but there are {len(one.masks)}")
        (start, end), candidates = one.masks[0].offset, one.masks[0].candidates
        written.append(
            [
                {
                    "score": candidate.probability,
                    "token": tokenizer.id(candidate.token),
                    "token_str": candidate.text,
                    "sequence": text[:start] + candidate.text.strip() + text[end:],
                }
                for candidate in candidates
            ]
        )
    return written[0] if isinstance(inputs, str) else written


async def _embed(service: Service, model: Served, inputs: str | list[str], given: dict[str, Any]) -> Any:
    options = _take(given, {"normalize": "normalise", "truncate": None, "truncation_direction": None})
    answer = await service.ask(Ask("embed", _list(inputs), options, model.name))
    return [one.vector.tolist() for one in answer.results]


_VERBS: dict[str, Answering] = {
    "translate": _translate,
    "generate": _generate,
    "classify": _classify,
    "tag": _tag,
    "fill": _fill,
}
"""By the first verb of a model, which is what its task is for; others embed."""
DIALECT = Dialect("huggingface", ("/", "/models/", "/pipeline/"), routes, say_plainly)
