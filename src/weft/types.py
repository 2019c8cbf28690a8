"""What flows between the rooms of the house.

Legend, used in every shape of this package: B batch, T time (tokens of a row), N real tokens of a batch without its
padding, D width of a vector, H heads, K width of a head, V vocabulary.

One convention for masks everywhere: True is a real token that may be looked at, False is not.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class TokenBatch:
    """Rows of token ids, padded to one length."""

    ids: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    documents: Int[Tensor, "B T"] | None = None
    """Where several documents share a row: the number of each token's document. Nothing looks across documents."""


@dataclass(frozen=True)
class PairBatch:
    """A source and the target to be made of it, row by row."""

    source: TokenBatch
    target: TokenBatch


@dataclass(frozen=True)
class Encoded:
    """A sequence after an encoder: one contextual vector a token."""

    states: Float[Tensor, "B T D"]
    mask: Bool[Tensor, "B T"]
    summary: Float[Tensor, "B S"]
    """One vector a row: the final states of a recurrent encoder, the mean of the others."""
    layers: tuple[Float[Tensor, "B T _"], ...] = ()
    """The input and the output of each layer, when they were asked for."""

    def select(self, rows: Int[Tensor, "R"]) -> "Encoded":
        """The encoding of some rows, in the given order, repeats allowed."""
        return Encoded(
            self.states.index_select(0, rows),
            self.mask.index_select(0, rows),
            self.summary.index_select(0, rows),
            tuple(layer.index_select(0, rows) for layer in self.layers),
        )


@dataclass(frozen=True)
class DecodeState:
    """What a decoder keeps between steps. Every tensor is batch-first, so search needs to know only `select`."""

    position: int
    """How many tokens have been read so far."""

    def select(self, rows: Int[Tensor, "R"]) -> Self:
        """The state of some rows, in the given order, repeats allowed: all that a search needs to reorder its beams."""
        return replace(self, **{f.name: _select(getattr(self, f.name), rows) for f in fields(self)})


def _select(value: Any, rows: Tensor) -> Any:
    match value:
        case Tensor():
            return value.index_select(0, rows)
        case tuple():
            return tuple(_select(item, rows) for item in value)
        case Encoded() | DecodeState():
            return value.select(rows)
        case _:
            return value
