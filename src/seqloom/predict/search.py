"""Running a search: what a user may ask for, and the seam between the verbs, which know texts, and whoever computes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, get_type_hints

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import nn

from seqloom.config.faults import describe_value, suggest
from seqloom.decode.options import Request, Search, SearchOptions, Tokens
from seqloom.decode.search import search
from seqloom.errors import ConfigError
from seqloom.models.language_models import LanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.text import Tokenizer
from seqloom.types import Hypothesis, TokenBatch

EngineName = Literal["compiled", "open", "ctranslate2", "ctranslate2-int8"]
"""What computes: the compiled copy of the network, the network itself, or CTranslate2, with the same weights or with
each in eight bits."""
Rows = Sequence[Sequence[int]]


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


_TYPES = {name: TypeAdapter(kind, config=ConfigDict(strict=True)) for name, kind in get_type_hints(Search).items()}


def read_search(keywords: Mapping[str, Any]) -> Search:
    """The search that keywords ask for; a wrong one is refused as a wrong key of a configuration is."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in keywords.items()}
    for name, value in plain.items():
        if name not in _TYPES:
            raise ConfigError(f"{name}: is not a known option{suggest(name, list(_TYPES))}; known: {', '.join(_TYPES)}")
        try:
            _TYPES[name].validate_python(value)
        except ValidationError as error:
            raise ConfigError(f"{name}: {describe_value(error.errors()[0])}") from None
    return Search(**plain)


def spell_required(wanted: Search, tokenizer: Tokenizer) -> tuple[Tokens, ...]:
    """The constraints as tokens, spelled as inside a sentence."""
    return tuple(_spell_inside(tokenizer, text) for text in wanted.constraints)


def spell_forbidden(wanted: Search, tokenizer: Tokenizer) -> tuple[Tokens, ...]:
    """What to avoid as tokens, in every spelling: inside a sentence and at its start."""
    spelled = [(_spell_inside(tokenizer, text), tuple(tokenizer.encode(text).ids)) for text in wanted.avoid]
    return tuple(dict.fromkeys(tokens for pair in spelled for tokens in pair))


def _spell_inside(tokenizer: Tokenizer, text: str) -> Tokens:
    words = text.split()
    if not words:
        raise ConfigError("a constraint, or what to avoid, is blank; leave it out")
    ids, first = tokenizer.encode_words(["a", *words])
    return tuple(ids[first[1] :])


class Engine(ABC):
    """Finds the answers to a batch of requests."""

    @abstractmethod
    def check(self, wanted: Search) -> None:
        """Refuse what this engine cannot be asked for, before there are lines."""

    @abstractmethod
    def search(
        self, sources: Rows | None, requests: Sequence[Request], options: SearchOptions, *, end: int, never: Tokens
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each request, best first; a language model has no sources."""

    def move_to(self, loaded: Any) -> "Engine":
        """The same for another model."""
        return self


class Computes(Protocol):
    """What a search needs of a model."""

    def compile(self) -> nn.Module:
        """What it computes with."""

    def pad(self, rows: Rows) -> TokenBatch:
        """Rows of ids as a batch."""


class NetworkEngine(Engine):
    """A network of ours: compiled, or as it is."""

    def __init__(self, loaded: Computes) -> None:
        self._loaded = loaded

    def move_to(self, loaded: Any) -> Engine:
        """The same for another model."""
        return NetworkEngine(loaded)

    def check(self, wanted: Search) -> None:
        """Everything may be asked."""

    def search(
        self, sources: Rows | None, requests: Sequence[Request], options: SearchOptions, *, end: int, never: Tokens
    ) -> list[list[Hypothesis]]:
        """Encode the sources, if there are any, and search."""
        network, capacity = self._loaded.compile(), max(1, *(request.max_length for request in requests))
        if sources is None:
            assert isinstance(network, LanguageModel)
            state = network.start(len(requests), capacity)
        else:
            assert isinstance(network, Seq2Seq)
            memory = network.encode(self._loaded.pad(sources))
            state = network.start(memory, capacity, attention=options.coverage_penalty > 0)
        return search(network.step, state, requests, options, end_id=end, never=never)
