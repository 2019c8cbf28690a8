"""The self-attention decoder (SPEC M4, M5): causal self-attention, cross-attention to a source if there is one."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from weft.decoders.base import Decoder, Source
from weft.nn.multihead import KeyValue, SourceKeyValue
from weft.nn.packing import Packing
from weft.nn.positions import PositionedInput
from weft.nn.residual import Norm, NormPosition, build_norm
from weft.nn.stack import Stack
from weft.nn.transformer import TransformerBlock
from weft.types import DecodeState, Encoded


@dataclass(frozen=True)
class TransformerState(DecodeState):
    """Keys and values of each block: of the target so far, in preallocated room, and of the source."""

    past: tuple[KeyValue, ...]
    memory: tuple[SourceKeyValue, ...]
    memory_mask: Bool[Tensor, "B S"] | None


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

    def start(self, memory: Encoded | None, batch_size: int, capacity: int) -> TransformerState:
        """Room for `capacity` tokens, and the source projected once."""
        self._check_source(memory, batch_size)
        past = tuple(block.attention.start(batch_size, capacity) for block in self.blocks)
        if memory is None:
            return TransformerState(0, past, (), None)
        projected = tuple(block.cross.project(memory.states) for block in self.blocks if block.cross is not None)
        return TransformerState(0, past, projected, memory.mask)

    def step(self, x: Float[Tensor, "B T D"], state: DecodeState) -> tuple[Float[Tensor, "B T E"], TransformerState]:
        """New tokens against what is kept."""
        assert isinstance(state, TransformerState)
        if self.positions is not None:
            places = torch.arange(state.position, state.position + x.shape[1], device=x.device).expand(x.shape[:2])
            x = self.positions(x, places, places.new_full((), state.position + x.shape[1]).expand_as(places))
        x = self.input_norm(x)
        memories = state.memory or (None,) * len(self.blocks)
        for block, past, memory in zip(self.blocks, state.past, memories, strict=True):
            x = block.step(x, past, state.position, memory, state.memory_mask)
        out: Tensor = self.final_norm(x)
        return out, replace(state, position=state.position + x.shape[1])
