"""The self-attention decoder: causal self-attention, cross-attention to a source if there is one."""

from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.decoders.base import Decoder, ProjectedSource, Source
from seqloom.errors import ShapeError
from seqloom.nn.cache import KeyValueCache, NewTokens
from seqloom.nn.packing import Packing
from seqloom.nn.positions import PositionedInput
from seqloom.nn.residual import Norm, NormPosition, build_norm
from seqloom.nn.stack import Stack
from seqloom.nn.transformer import TransformerBlock
from seqloom.types import DecodeState, Encoded, LineState, join_rows


@dataclass(frozen=True)
class Past(LineState):
    """Keys and values of the target so far, for each block, in preallocated room: nn/cache.py says how it is used."""

    layers: tuple[Float[Tensor, "B _ P W _"], ...]
    slots: Int[Tensor, "B W P"] | None = None
    """In whose slot each earlier token of a beam stands; one beam needs none."""

    def branch(self, origins: Int[Tensor, "B W"], used: int, *, ragged: bool) -> "Past":
        """Beams that go on from others, after at most `used` tokens; they may become more, not fewer.

        `ragged`: lines have read different numbers of tokens, so that one is shown places it has not written to.
        """
        batch, _, room, before, _ = self.layers[0].shape
        added = origins.shape[1] - before
        if added < 0:
            raise ShapeError(f"{before} beams cannot become {origins.shape[1]}")
        slots = torch.empty(batch, origins.shape[1], room, dtype=torch.int32, device=origins.device)
        chosen = origins.unsqueeze(2).expand(-1, -1, used)
        slots[:, :, :used] = 0 if self.slots is None else self.slots[:, :, :used].gather(1, chosen)
        layers = tuple(_widen(kept, added, used, ragged=ragged) for kept in self.layers) if added else self.layers
        return Past(layers, slots)

    def read(self, positions: tuple[int, ...], length: int) -> NewTokens:
        """Where new tokens stand; each is kept in the slot of its own beam."""
        new = NewTokens(positions, length, self.layers[0].device, self.slots)
        if self.slots is not None:
            own = torch.arange(self.slots.shape[1], dtype=torch.int32, device=self.slots.device).unsqueeze(1)
            if new.ragged:
                lines = torch.arange(len(self.slots), device=self.slots.device).unsqueeze(1)
                self.slots[lines, :, new.places] = own.T
            else:
                self.slots[:, :, new.start : new.end] = own
        return new

    def clear(self, positions: tuple[int, ...]) -> "Past":
        """The same with zeros wherever nothing was written: beside longer lines, that is read, with weight 0."""
        layers = tuple(kept.clone() for kept in self.layers)
        for line, position in enumerate(positions):
            for kept in layers:
                kept[line, :, position:] = 0.0
        return Past(layers, self.slots)

    def join(self, other: "Past") -> "Past":
        """The lines of both, with as much room as the roomier has."""
        layers = tuple(join_rows(one, two) for one, two in zip(self.layers, other.layers, strict=True))
        slots = None if self.slots is None or other.slots is None else join_rows(self.slots, other.slots)
        return Past(layers, slots)


@dataclass(frozen=True)
class PositionTable:
    """The vectors of positions, made once for all steps; None where positions are not joined to the input."""

    vectors: Float[Tensor, "L P"] | None

    @property
    def length(self) -> int:
        """How many positions have theirs."""
        return 0 if self.vectors is None else len(self.vectors)


@dataclass(frozen=True)
class TransformerState(DecodeState):
    """What was read of the target, and the source."""

    past: Past
    source: ProjectedSource | None
    table: PositionTable

    def branch(self, origins: Int[Tensor, "B W"]) -> Self:
        """Beams that go on from others."""
        used, least = max(self.positions, default=0), min(self.positions, default=0)
        return replace(super().branch(origins), past=self.past.branch(origins, used, ragged=used != least))

    def join(self, other: Self) -> Self:
        """The lines of both."""
        width = max(self.width, other.width)
        wide = (self._widen(width), other._widen(width))
        one, two = (replace(state, past=state.past.clear(state.positions)) for state in wide)
        table = max(self.table, other.table, key=lambda table: table.length)
        return replace(super(TransformerState, one).join(two), table=table)


def _widen(kept: Tensor, added: int, used: int, *, ragged: bool) -> Tensor:
    """Empty slots beside the used ones: what is seen with weight 0 must still be a number."""
    batch, groups, room, width, dim = kept.shape
    shape = (batch, groups, room, width + added, dim)
    wider = kept.new_zeros(shape) if ragged else kept.new_empty(shape)
    wider[:, :, :used, :width] = kept[:, :, :used]
    wider[:, :, :used, width:] = 0.0
    return wider


class TransformerDecoder(Decoder):
    """A stack of causal blocks; without a source it is a decoder-only model."""

    def __init__(
        self,
        blocks: list[TransformerBlock],
        positions: PositionedInput | None,
        *,
        model_dim: int,
        norm: Norm,
        norm_position: NormPosition,
        norm_epsilon: float | None = None,
        input_norm: bool = False,
    ) -> None:
        super().__init__()
        self.input_dim = self.output_dim = model_dim
        self.has_source = any(block.cross is not None for block in blocks)
        self.positions = positions
        self.input_norm = build_norm(norm, model_dim, norm_epsilon) if input_norm else nn.Identity()
        self.blocks = Stack(blocks)
        self.final_norm = build_norm(norm, model_dim, norm_epsilon) if norm_position == "pre" else nn.Identity()

    def decode(
        self, x: Float[Tensor, "N D"], packing: Packing, source: Source | None, inputs: list[Tensor] | None = None
    ) -> Float[Tensor, "N E"]:
        """Whole targets, packed."""
        if self.positions is not None:
            x = self.positions(x, packing.positions, packing.token_lengths)
        x = self.input_norm(x)
        for block in self.blocks:
            if inputs is not None:
                inputs.append(x)
            memory = () if source is None else (source.states, source.pairing)
            x = self.blocks.run(block, x, packing, *memory)
        out: Tensor = self.final_norm(x)
        return out

    def _start(self, memory: Encoded | None, batch_size: int, capacity: int) -> TransformerState:
        """Room for `capacity` tokens, the source projected once, and the vectors of positions."""
        past = Past(tuple(block.attention.start(batch_size, capacity) for block in self.blocks))
        start, device = (0,) * batch_size, past.layers[0].device
        table = PositionTable(None if self.positions is None else self.positions.tabulate(capacity, device))
        if memory is None:
            return TransformerState(start, past, None, table)
        projected = tuple(block.cross.project(memory.states) for block in self.blocks if block.cross is not None)
        return TransformerState(start, past, ProjectedSource.of(projected, memory.mask), table)

    def _advance(
        self, x: Float[Tensor, "R T D"], state: DecodeState, record: list[Tensor] | None
    ) -> tuple[Float[Tensor, "R T E"], TransformerState]:
        """New tokens against what is kept."""
        assert isinstance(state, TransformerState)
        (rows, length, _), past, source = x.shape, state.past, state.source
        new = past.read(state.positions, length)
        if self.positions is not None:
            x = self._place(x, new, state.table)
        x = self.input_norm(x.flatten(0, 1))  # (R·T, D): all but attention treats positions alike
        for index, block in enumerate(self.blocks):
            memory = () if source is None else (source.layer(index, record),)
            x = block(x, KeyValueCache(past.layers[index], new), *memory)
        return self.final_norm(x).view(rows, length, -1), state

    def _place(self, x: Float[Tensor, "R T D"], new: NewTokens, table: PositionTable) -> Float[Tensor, "R T D"]:
        """The new tokens with their positions, from the table where it has them."""
        assert self.positions is not None
        placed: Tensor
        if table.vectors is None or new.end > table.length:
            places = new.spread(len(x))
            placed = self.positions(x, places, places + 1)
        elif new.ragged:
            placed = self.positions(x, vectors=F.embedding(new.spread(len(x)), table.vectors))
        else:
            placed = self.positions(x, vectors=table.vectors[new.start : new.end])
        return placed
