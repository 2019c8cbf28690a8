"""What a user may ask of a verb and of its search, and the engines that run the search.

Wrong arguments of the Python interface are refused with a sentence, and its help shows every option of a search.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache, wraps
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from seqloom.config.faults import describe_value, suggest
from seqloom.decode.options import Request, Search, SearchOptions, Tokens
from seqloom.decode.record import Recorder
from seqloom.decode.search import search
from seqloom.errors import ConfigError
from seqloom.models.language_models import LanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.text import Tokenizer
from seqloom.types import Hypothesis

if TYPE_CHECKING:
    from seqloom.predict.predictor import Predictor

EngineName = Literal["compiled", "open", "ctranslate2", "ctranslate2-int8"]
"""What computes: the compiled copy of the network, the network itself, or CTranslate2, in float32 or in int8."""
Precision = Literal["float32", "bfloat16", "int8"]
"""Of the weights of a compiled copy's Transformer blocks and output layer, and of what is multiplied by them."""
Rows = Sequence[Sequence[int]]
F = TypeVar("F", bound=Callable[..., Any])


class SearchKeywords(TypedDict, total=False):
    """The fields of `Search`, each of which may be left out."""

    beam: int
    nbest: int
    length_penalty: float
    coverage_penalty: float
    sample: bool
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int
    min_length: int
    max_length: int | None
    prefix: str
    constraints: Sequence[str]
    avoid: Sequence[str]
    repetition_penalty: float
    no_repeat_ngram: int
    allow_unseen: bool


_TYPES = get_type_hints(Search)


class Option(NamedTuple):
    """An option of a search."""

    name: str
    kind: Any
    default: Any
    about: str


def list_options() -> list[Option]:
    """The options of a search, as their fields say."""
    said = {name: get_args(kind)[1] for name, kind in get_type_hints(Search, include_extras=True).items()}
    return [Option(field.name, _TYPES[field.name], field.default, said[field.name]) for field in fields(Search)]


def read_search(keywords: Mapping[str, Any]) -> Search:
    """The search that keywords describe; an unknown keyword or a wrong value is refused."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in keywords.items()}
    for name, value in plain.items():
        check_known(name, list(_TYPES))
        check_value(name, value, _TYPES[name])
    return Search(**plain)


def check_value(name: str, value: Any, kind: Any) -> None:
    """Refuse a value that is not of the type that an option has."""
    try:
        _make_adapter(kind).validate_python(value.item() if isinstance(value, np.generic) else value)
    except ValidationError as error:
        raise ConfigError(f"{name}: {describe_value(error.errors()[0])}") from None


@cache
def _make_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(strict=True))


def check_known(name: str, known: Sequence[str]) -> None:
    """Refuse an unknown option, and suggest the nearest known one."""
    if name not in known:
        raise ConfigError(f"{name}: is not a known option{suggest(name, known)}; known: {', '.join(known)}")


def spell_required(wanted: Search, tokenizer: Tokenizer) -> tuple[Tokens, ...]:
    """The tokens of each constraint, as spelled inside a sentence."""
    return tuple(_spell_inside(tokenizer, text) for text in wanted.constraints)


def spell_forbidden(wanted: Search, tokenizer: Tokenizer) -> tuple[Tokens, ...]:
    """The tokens of each text to avoid, as spelled inside a sentence and at its start."""
    spelled = [(_spell_inside(tokenizer, text), tuple(tokenizer.encode(text).ids)) for text in wanted.avoid]
    return tuple(dict.fromkeys(tokens for pair in spelled for tokens in pair))


def _spell_inside(tokenizer: Tokenizer, text: str) -> Tokens:
    words = text.split()
    if not words:
        raise ConfigError("a constraint or a text to avoid is blank; leave it out")
    ids, first = tokenizer.encode_words(["a", *words])
    return tuple(ids[first[1] :])


def spell_token(tokenizer: Tokenizer, id: int) -> str:
    """The text of a token by itself; its name, if it has no text, or its number, if the vocabulary ends before it."""
    if id >= tokenizer.vocab_size:
        return f"[{id}]"
    text = tokenizer.decode([id])
    return text if text.strip() and "\ufffd" not in text else tokenizer.token(id)


def check_keywords(function: F) -> F:
    """Refuse an unknown keyword of a function and suggest the nearest known one; refuse a value of a wrong type."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [one.name for one in parameters if one.kind in kinds and one.name != "self"]
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        known += SearchKeywords.__annotations__

    @cache
    def get_types() -> dict[str, Any]:  # at the first call: some are named before they are defined
        return get_type_hints(function)

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        for name, value in named.items():
            check_known(name, known)
            if name not in SearchKeywords.__annotations__ and _is_plain(kind := get_types().get(name)):
                check_value(name, value, kind)
        return function(*given, **named)

    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        _show_search(call, function)
    return call  # type: ignore[return-value]


def _show_search(call: Any, function: Callable[..., Any]) -> None:
    """Put the options of a search in place of `**search` where a person looks: in the signature and the help."""
    signature = inspect.signature(function)
    kept = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    options = list_options()
    added = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.kind)
        for one in options
    ]
    call.__signature__ = signature.replace(parameters=[*kept, *added])
    lines = [f"    {one.name}: {one.about}" for one in options]
    call.__doc__ = "\n".join([inspect.getdoc(function) or "", "", "Options of the search:", *lines])


def _is_plain(kind: Any) -> bool:
    """Whether a type is made of words, numbers and truth values, or a sequence of texts."""
    match get_origin(kind):
        case None:
            return kind in (int, float, bool, str, type(None))
        case origin if origin is Literal:
            return True
        case origin if origin in (Union, UnionType):
            return all(map(_is_plain, get_args(kind)))
        case origin:
            return origin is Sequence and get_args(kind) == (str,)


class Engine(ABC):
    """Finds the answers to a batch of requests."""

    @abstractmethod
    def check(self, wanted: Search) -> None:
        """Refuse options that this engine does not have, before any line is read."""

    @abstractmethod
    def search(
        self,
        sources: Rows | None,
        requests: Sequence[Request],
        options: SearchOptions,
        *,
        ends: Tokens,
        never: Tokens,
        recorder: Recorder | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each request, best first; a language model has no sources.

        An engine that cannot say how it searched refuses a `recorder`.
        """

    def move_to(self, predictor: "Predictor") -> "Engine":
        """The same engine for another predictor."""
        return self


class NetworkEngine(Engine):
    """Searches with a predictor's network, compiled or as it is."""

    def __init__(self, predictor: "Predictor") -> None:
        self._predictor = predictor

    def move_to(self, predictor: "Predictor") -> Engine:
        """The same engine for another predictor."""
        return NetworkEngine(predictor)

    def check(self, wanted: Search) -> None:
        """Accept every option."""

    def search(
        self,
        sources: Rows | None,
        requests: Sequence[Request],
        options: SearchOptions,
        *,
        ends: Tokens,
        never: Tokens,
        recorder: Recorder | None = None,
    ) -> list[list[Hypothesis]]:
        """Encode the sources, if there are any, and search."""
        network, capacity = self._predictor.compile(), max(1, *(request.max_length for request in requests))
        if sources is None:
            assert isinstance(network, LanguageModel)
            state = network.start(len(requests), capacity)
        else:
            assert isinstance(network, Seq2Seq)
            memory = network.encode(self._predictor.pad(sources))
            state = network.start(memory, capacity, attention=options.coverage_penalty > 0)
        return search(network.step, state, requests, options, ends=ends, never=never, recorder=recorder)
