"""The interface of all decoders.

Like an encoder, a decoder maps vectors to vectors; the embedding and the output layer belong to the model around it. It
runs over a whole known target at once (training, scoring) or step by step (search), with the same result.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqloom.errors import ShapeError
from seqloom.nn.cache import LayerSource
from seqloom.nn.packing import Packing, Pairing
from seqloom.types import DecodeState, Encoded, SharedState, join_rows


def find_packing(memory: Encoded) -> Packing:
    """How the rows of a source are packed, as its encoder knew or as its mask says."""
    known = isinstance(memory.packing, Packing) and memory.packing.mask is memory.mask
    return memory.packing if known else Packing(memory.mask)


class Source:
    """The packed source of a packed target that attends to it."""

    def __init__(self, memory: Encoded, target: Packing) -> None:
        packing = find_packing(memory)
        self.states = packing.pack(memory.states)
        self.summary, self.final = memory.summary, memory.final
        self.pairing = Pairing.of(target, packing)


@dataclass(frozen=True)
class ProjectedSource(SharedState):
    """Keys and values of a padded source, for each layer."""

    layers: tuple[tuple[Float[Tensor, "B _ S _"], Float[Tensor, "B _ S _"]], ...]
    bias: Float[Tensor, "B 1 1 S"] | None
    """0 for a token and −∞ for padding, added to the scores of each step and layer; None without padding."""

    @classmethod
    def of(cls, layers: tuple[tuple[Tensor, Tensor], ...], memory: Encoded) -> "ProjectedSource":
        """From the keys and values of each layer, and the source that they were made from."""
        if find_packing(memory).full:
            return cls(layers, None)
        bias = torch.where(memory.mask, 0.0, -torch.inf).to(layers[0][0].dtype)
        return cls(layers, bias[:, None, None, :])

    def layer(self, index: int, record: list[Tensor] | None) -> LayerSource:
        """What one layer attends to; it appends its attention weights to `record`."""
        return LayerSource(*self.layers[index], self.bias, record)

    def join(self, other: Self) -> Self:
        """The sources of both; shorter ones are padded."""
        same = self.layers[0][0].shape[2] == other.layers[0][0].shape[2]
        bias = None
        if not (same and self.bias is None and other.bias is None):
            bias = join_rows(self._full_bias(), other._full_bias(), -torch.inf)
        return replace(super(ProjectedSource, replace(self, bias=None)).join(replace(other, bias=None)), bias=bias)

    def _full_bias(self) -> Float[Tensor, "B 1 1 S"]:
        keys = self.layers[0][0]
        return keys.new_zeros(len(keys), 1, 1, keys.shape[2]) if self.bias is None else self.bias


@dataclass
class Stepping:
    """The state that a step reads and replaces; it appends its attention weights over the source to `record`."""

    state: DecodeState
    record: list[Tensor] | None


class Decoder(nn.Module, ABC):
    """Maps each target position, given the target so far and the whole source if there is one, to a state."""

    input_dim: int
    output_dim: int
    has_source: bool
    attends = True
    """Whether it attends to its source, if there is one."""

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"] | Stepping,
        memory: Encoded | None = None,
        *,
        documents: Int[Tensor, "B T"] | None = None,
        packing: Packing | None = None,
        layers: list[Tensor] | None = None,
    ) -> Float[Tensor, "B T E"]:
        """The states of all positions at once; position t sees the inputs up to t.

        `packing` is that of the mask and the documents, where it is known already. The input of each layer is appended
        to `layers`. With a `Stepping` instead of a mask, it takes a decoding step.
        """
        if isinstance(mask, Stepping):
            out, mask.state = self._advance(x, mask.state, mask.record)
            return out
        if x.shape[-1] != self.input_dim:
            raise ShapeError(f"x has width {x.shape[-1]} but this decoder takes {self.input_dim}")
        self._check_source(memory, x.shape[0])
        if memory is not None and documents is not None:
            raise ShapeError("documents cannot be given with a source, which would belong to only one of them")
        packing = Packing(mask, documents) if packing is None else packing
        source = None if memory is None else Source(memory, packing)
        inputs: list[Tensor] = []
        out = packing.unpack(self.decode(packing.pack(x), packing, source, None if layers is None else inputs))
        if layers is not None:
            layers.extend(map(packing.unpack, inputs))
        return out

    @abstractmethod
    def decode(
        self, x: Float[Tensor, "N D"], packing: Packing, source: Source | None, inputs: list[Tensor] | None = None
    ) -> Float[Tensor, "N E"]:
        """The states of whole targets, packed; the input of each layer is appended to `inputs`."""

    def start(self, memory: Encoded | None, batch_size: int, capacity: int, *, attention: bool = False) -> DecodeState:
        """The state before the first token, with room for `capacity` tokens.

        With `attention`, each step also gives its attention weights over the source; at the start, those are 1 on
        padding, so that a coverage penalty does not count it.
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

    def step(self, x: Float[Tensor, "R T D"], state: DecodeState) -> tuple[Float[Tensor, "R T E"], DecodeState]:
        """Read one or more new tokens of every row. This may overwrite `state`: use the returned state from then on."""
        record: list[Tensor] | None = None if state.attention is None else []
        stepping = Stepping(state, record)
        out: Tensor = self(x, stepping)
        positions = tuple(position + x.shape[1] for position in state.positions)
        seen = record[-1].unflatten(0, (len(x), -1)).sum(1) if record else None
        return out, replace(stepping.state, positions=positions, attention=seen)

    @abstractmethod
    def _advance(
        self, x: Float[Tensor, "R T D"], state: DecodeState, record: list[Tensor] | None
    ) -> tuple[Float[Tensor, "R T E"], DecodeState]:
        """Take a step; each layer appends its attention weights over the source, (R·T, S), to `record`."""

    def attend_source(self, x: Float[Tensor, "B T D"], memory: Encoded) -> Float[Tensor, "B T S"]:
        """The attention weights of each position in the last layer that attends to the source, averaged over heads."""
        record: list[Tensor] = []
        self(x, Stepping(self.start(memory, len(x), x.shape[1], attention=True), record))
        return record[-1].unflatten(0, (len(x), -1))

    def _check_source(self, memory: Encoded | None, num_rows: int) -> None:
        if self.has_source != (memory is not None):
            raise ShapeError(
                f"memory is {'missing' if self.has_source else 'given'}, but this decoder has "
                f"{'a' if self.has_source else 'no'} source to attend to"
            )
        if memory is not None and memory.states.shape[0] != num_rows:
            raise ShapeError(f"memory has {memory.states.shape[0]} rows but the target has {num_rows}")
