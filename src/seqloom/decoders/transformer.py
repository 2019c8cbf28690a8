"""The self-attention decoder (SPEC M4, M5): causal self-attention, cross-attention to a source if there is one."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.decoders.base import Decoder, ProjectedSource, Source, sum_looks
from seqloom.errors import ShapeError
from seqloom.nn.multihead import KeyValue
from seqloom.nn.packing import Packing
from seqloom.nn.positions import PositionedInput
from seqloom.nn.residual import Norm, NormPosition, build_norm
from seqloom.nn.stack import Stack
from seqloom.nn.transformer import BlockStep, TransformerBlock
from seqloom.types import DecodeState, Encoded, LineState


@dataclass(frozen=True)
class Past(LineState):
    """Keys and values of the target so far, for each block, in preallocated room.

    A token's keys stay in the slot of the beam that wrote them. `ancestry` says in whose slot each earlier token of a
    beam stands, by a 0 among −∞, and where beams are reordered, only that is. One beam needs none.
    """

    layers: tuple[KeyValue, ...]
    ancestry: Float[Tensor, "B W _ W"] | None = None

    def branch(self, origins: Int[Tensor, "B W"], position: int) -> "Past":
        """Beams that go on from others, after `position` tokens; they may become more, not fewer."""
        keys = self.layers[0]
        added = origins.shape[1] - keys.shape[3]
        if added < 0:
            raise ShapeError(f"{keys.shape[3]} beams cannot become {origins.shape[1]}")
        ancestry = keys.new_zeros(len(keys), 1, position, 1) if self.ancestry is None else self.ancestry
        ancestry = ancestry.gather(1, origins[:, :, None, None].expand(-1, -1, *ancestry.shape[2:]))
        if not added:
            return Past(self.layers, ancestry)
        layers = tuple(_widen(kept, added, position) for kept in self.layers)
        return Past(layers, F.pad(ancestry, (0, added), value=-torch.inf))

    def extend(self, length: int) -> "Past":
        """With tokens to come, each in its beam's own slot."""
        if self.ancestry is None:
            return self
        batch, width = self.ancestry.shape[:2]
        own = _own_slots(width, self.ancestry.dtype, self.ancestry.device).expand(batch, -1, length, -1)
        return Past(self.layers, torch.cat([self.ancestry, own], dim=2))


@dataclass(frozen=True)
class TransformerState(DecodeState):
    """What was read of the target, and the source."""

    steps: tuple[BlockStep, ...]
    """The blocks as functions, with the weights of the start."""
    past: Past
    source: ProjectedSource | None

    def branch(self, origins: Int[Tensor, "B W"]) -> Self:
        """Beams that go on from others."""
        return replace(super().branch(origins), past=self.past.branch(origins, self.position))


@cache
def _own_slots(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """0 on the diagonal, −∞ beside it: (W, 1, W)."""
    return torch.eye(width, dtype=dtype, device=device).log().unsqueeze(1)


def _widen(kept: Tensor, added: int, used: int) -> Tensor:
    """Empty slots beside the used ones: what no beam looks at must still be numbers."""
    batch, groups, room, width, dim = kept.shape
    wider = kept.new_empty(batch, groups, room, width + added, dim)
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

    def decode(self, x: Float[Tensor, "N D"], packing: Packing, source: Source | None) -> Float[Tensor, "N E"]:
        """Whole targets, packed."""
        if self.positions is not None:
            x = self.positions(x, packing.positions, packing.token_lengths)
        x = self.input_norm(x)
        for block in self.blocks:
            memory = () if source is None else (source.states, source.pairing)
            x = self.blocks.run(block, x, packing, *memory)
        out: Tensor = self.final_norm(x)
        return out

    def _start(self, memory: Encoded | None, batch_size: int, capacity: int) -> TransformerState:
        """Room for `capacity` tokens, and the source projected once."""
        past = Past(tuple(block.attention.start(batch_size, capacity) for block in self.blocks))
        steps = tuple(block.bind() for block in self.blocks)
        if memory is None:
            return TransformerState(0, steps, past, None)
        projected = tuple(block.cross.project(memory.states) for block in self.blocks if block.cross is not None)
        return TransformerState(0, steps, past, ProjectedSource.of(projected, memory.mask))

    def step(self, x: Float[Tensor, "R T D"], state: DecodeState) -> tuple[Float[Tensor, "R T E"], TransformerState]:
        """New tokens against what is kept."""
        assert isinstance(state, TransformerState)
        position, (rows, length, _) = state.position, x.shape
        if self.positions is not None:
            x = self.positions.step(x, position)
        x = self.input_norm(x.flatten(0, 1))  # (R·T, D): all but attention treats positions alike
        past, source = state.past.extend(length), state.source
        looks: list[Tensor] | None = None if state.attention is None else []
        for index, step in enumerate(state.steps):
            memory = () if source is None else (source.layers[index], source.bias, looks)
            x = step(x, past.layers[index], position, past.ancestry, *memory)
        out: Tensor = self.final_norm(x).view(rows, length, -1)
        attention = sum_looks(looks, rows)
        return out, replace(state, position=position + length, past=past, attention=attention)
