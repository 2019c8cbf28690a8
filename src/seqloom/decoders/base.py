"""The one interface of everything that predicts a sequence from its own beginning (SPEC A7, A8, M4–M6).

Like an encoder, a decoder maps vectors to vectors: the model around it owns the embedding and the output layer. It runs
all at once over a known target (training, scoring) or step by step (search), with the same result.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqloom.errors import ShapeError
from seqloom.nn.multihead import SourceKeyValue
from seqloom.nn.packing import Packing, Pairing
from seqloom.types import DecodeState, Encoded, LineState


class Source:
    """A source beside the target that looks at it, both packed."""

    def __init__(self, memory: Encoded, target: Packing) -> None:
        packing = Packing(memory.mask)
        self.states = packing.pack(memory.states)
        self.summary = memory.summary
        self.pairing = Pairing.of(target, packing)


@dataclass(frozen=True)
class ProjectedSource(LineState):
    """Keys and values of a padded source, for each layer."""

    layers: tuple[SourceKeyValue, ...]
    bias: Float[Tensor, "B 1 1 S"] | None
    """0 for a token, −∞ for padding, if there is any: made once, since each step and layer adds it."""

    @classmethod
    def of(cls, layers: tuple[SourceKeyValue, ...], mask: Bool[Tensor, "B S"]) -> "ProjectedSource":
        """With the mask of the source."""
        if mask.all():
            return cls(layers, None)
        bias = torch.where(mask, 0.0, -torch.inf).to(layers[0][0].dtype)
        return cls(layers, bias[:, None, None, :])


class Decoder(nn.Module, ABC):
    """States that see the target so far and, where there is one, the whole source."""

    input_dim: int
    output_dim: int
    has_source: bool
    attends = True
    """Whether a source, where there is one, is attended to."""

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
        memory: Encoded | None = None,
        *,
        documents: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T E"]:
        """All positions at once; position t sees the inputs up to t."""
        if x.shape[-1] != self.input_dim:
            raise ShapeError(f"x has width {x.shape[-1]} but this decoder takes {self.input_dim}")
        self._check_source(memory, x.shape[0])
        if x.shape[:2] != mask.shape:
            raise ShapeError(f"mask has shape {tuple(mask.shape)} but x has {tuple(x.shape[:2])} (rows, tokens)")
        if memory is not None and documents is not None:
            raise ShapeError("documents cannot be given with a source: which document would it belong to?")
        packing = Packing(mask, documents)
        source = None if memory is None else Source(memory, packing)
        return packing.unpack(self.decode(packing.pack(x), packing, source))

    @abstractmethod
    def decode(self, x: Float[Tensor, "N D"], packing: Packing, source: Source | None) -> Float[Tensor, "N E"]:
        """Whole targets, packed."""

    def start(self, memory: Encoded | None, batch_size: int, capacity: int, *, attention: bool = False) -> DecodeState:
        """The state before the first token, with room for `capacity` of them.

        With `attention`, each step also reports what its tokens look at; before the first, padding counts as seen.
        """
        self._check_source(memory, batch_size)
        state = self._start(memory, batch_size, capacity)
        if not attention:
            return state
        if memory is None or not self.attends:
            raise ShapeError("this decoder does not attend to a source; start it without attention")
        return replace(state, attention=(~memory.mask).to(memory.states.dtype))

    @abstractmethod
    def _start(self, memory: Encoded | None, batch_size: int, capacity: int) -> DecodeState: ...

    @abstractmethod
    def step(self, x: Float[Tensor, "R T D"], state: DecodeState) -> tuple[Float[Tensor, "R T E"], DecodeState]:
        """One or more new tokens of every row. Room in `state` is written to: keep using the state that is returned."""

    def _check_source(self, memory: Encoded | None, num_rows: int) -> None:
        if self.has_source != (memory is not None):
            raise ShapeError(
                f"memory is {'missing' if self.has_source else 'given'}, but this decoder has "
                f"{'a' if self.has_source else 'no'} source to look at"
            )
        if memory is not None and memory.states.shape[0] != num_rows:
            raise ShapeError(f"memory has {memory.states.shape[0]} rows but the target has {num_rows}")


def sum_looks(looks: list[Float[Tensor, "N S"]] | None, rows: int) -> Float[Tensor, "R S"] | None:
    """What the new tokens of each row look at in the last layer, if it was asked for: the sum over the tokens."""
    return looks[-1].unflatten(0, (rows, -1)).sum(1) if looks else None
