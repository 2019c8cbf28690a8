"""The Transformer decoder: causal self-attention, and cross-attention to a source if there is one."""

from dataclasses import dataclass, replace
from typing import Self

from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.decoders.base import Decoder, ProjectedSource, Source
from seqloom.nn.cache import KeyValueCache, LayerCache
from seqloom.nn.packing import Packing
from seqloom.nn.positions import PositionEncoding, PositionTable, encode_positions
from seqloom.nn.transformer import Norm, Stack, TransformerBlock
from seqloom.types import DecodeState, Encoded


@dataclass(frozen=True)
class TransformerState(DecodeState):
    """Keys and values of the target so far and of the source, and the vectors of positions."""

    cache: KeyValueCache
    source: ProjectedSource | None
    table: PositionTable

    def branch(self, origins: Int[Tensor, "B W"]) -> Self:
        """Beams that continue others."""
        used, least = max(self.positions, default=0), min(self.positions, default=0)
        return replace(super().branch(origins), cache=self.cache.branch(origins, used, ragged=used != least))

    def join(self, other: Self) -> Self:
        """The lines of both."""
        width = max(self.width, other.width)
        wide = (self._widen(width), other._widen(width))
        one, two = (replace(state, cache=state.cache.clear(state.positions)) for state in wide)
        table = max(self.table, other.table, key=lambda table: table.length)
        return replace(super(TransformerState, one).join(two), table=table)


class TransformerDecoder(Decoder):
    """A stack of causal blocks; without a source it is a decoder-only model."""

    def __init__(
        self,
        blocks: list[TransformerBlock],
        positions: PositionEncoding | None,
        norm: Norm,
        *,
        model_dim: int,
        input_norm: bool = False,
    ) -> None:
        super().__init__()
        self.input_dim = self.output_dim = model_dim
        self.has_source = any(block.cross is not None for block in blocks)
        self.positions = positions
        self.input_norm = norm.build(model_dim) if input_norm else nn.Identity()
        self.blocks = Stack(blocks)
        self.final_norm = norm.build(model_dim) if norm.position == "pre" else nn.Identity()

    def decode(
        self, x: Float[Tensor, "N D"], packing: Packing, source: Source | None, inputs: list[Tensor] | None = None
    ) -> Float[Tensor, "N E"]:
        """Whole targets, packed."""
        if self.positions is not None:
            x = encode_positions(self.positions, x, packing)
        x = self.input_norm(x)
        for block in self.blocks:
            if inputs is not None:
                inputs.append(x)
            memory = () if source is None else (source.states, source.pairing)
            x = self.blocks.run(block, x, packing, *memory)
        return self.final_norm(x)

    def _start(self, memory: Encoded | None, batch_size: int, capacity: int) -> TransformerState:
        """An empty cache for `capacity` tokens, the projected source, and the vectors of positions."""
        cache = KeyValueCache(tuple(block.attention.start(batch_size, capacity) for block in self.blocks))
        start, device = (0,) * batch_size, cache.layers[0].device
        table = PositionTable(None) if self.positions is None else self.positions.tabulate(capacity, device)
        if memory is None:
            return TransformerState(start, cache, None, table)
        projected = tuple(block.cross.project(memory.states) for block in self.blocks if block.cross is not None)
        return TransformerState(start, cache, ProjectedSource.of(projected, memory), table)

    def _advance(
        self, x: Float[Tensor, "R T D"], state: DecodeState, record: list[Tensor] | None
    ) -> tuple[Float[Tensor, "R T E"], TransformerState]:
        assert isinstance(state, TransformerState)
        (rows, length, _), cache, source = x.shape, state.cache, state.source
        new = cache.extend(state.positions, length)
        if self.positions is not None:
            x = self.positions.encode_step(x, new, state.table)
        x = self.input_norm(x.flatten(0, 1))  # (R·T, D): only attention needs to know the rows
        for index, block in enumerate(self.blocks):
            memory = () if source is None else (source.layer(index, record),)
            x = block(x, LayerCache(cache.layers[index], new), *memory)
        return self.final_norm(x).view(rows, length, -1), state
