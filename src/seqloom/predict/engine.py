"""What runs a search: the one seam between the verbs, which know lines and texts, and whoever computes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from torch import nn

from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search
from seqloom.models.language_models import LanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.types import Hypothesis, TokenBatch

Name = Literal["compiled", "open", "ctranslate2", "ctranslate2-int8"]
"""What computes: the compiled copy of the network, the network itself, or CTranslate2, with the same weights or with
each in eight bits."""
Rows = Sequence[Sequence[int]]


class Engine(ABC):
    """Finds the answers to a batch of requests."""

    @abstractmethod
    def check(self, options: SearchOptions, *, constrained: bool) -> None:
        """Refuse what this engine cannot be asked for, before there are lines; `constrained`: words are required."""

    @abstractmethod
    def search(
        self, sources: Rows | None, requests: Sequence[Request], options: SearchOptions, *, end: int
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

    def check(self, options: SearchOptions, *, constrained: bool) -> None:
        """Everything may be asked."""

    def search(
        self, sources: Rows | None, requests: Sequence[Request], options: SearchOptions, *, end: int
    ) -> list[list[Hypothesis]]:
        """Encode the sources, if there are any, and search."""
        network, capacity = self._loaded.compile(), max(1, *(request.max_length for request in requests))
        if sources is None:
            assert isinstance(network, LanguageModel)
            return search(network.step, network.start(len(requests), capacity), requests, options, end_id=end)
        assert isinstance(network, Seq2Seq)
        memory = network.encode(self._loaded.pad(sources))
        state = network.start(memory, capacity, attention=options.coverage_penalty > 0)
        return search(network.step, state, requests, options, end_id=end)
