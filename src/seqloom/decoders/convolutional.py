"""The convolutional decoder: causal convolutions, with attention to the source in every layer.

Gehring et al. 2017, §3: h = conv(x);  h ← h + attend(h, source);  x ← x + h, each sum scaled by √½. Without residual
connections, x ← h.
"""

import math
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from seqloom.decoders.base import Decoder, ProjectedSource, Source
from seqloom.nn.cache import LayerState, NewTokens
from seqloom.nn.convolution import Convolution
from seqloom.nn.dropout import Dropout
from seqloom.nn.multihead import CrossAttention
from seqloom.nn.packing import Packing
from seqloom.nn.positions import PositionEncoding, PositionTable, encode_positions
from seqloom.nn.transformer import Stack
from seqloom.types import DecodeState, Encoded


@dataclass(frozen=True)
class ConvolutionalState(DecodeState):
    """The last inputs of each layer, as many as its kernel reaches back to, and the source."""

    inputs: tuple[Float[Tensor, "R _ D"], ...]
    source: ProjectedSource | None


class ConvolutionalDecoder(Decoder):
    """A stack of causal convolutions; nn/convolution.py says how far a position sees."""

    def __init__(
        self,
        layers: list[Convolution],
        cross: list[CrossAttention],
        positions: PositionEncoding | None,
        *,
        model_dim: int,
        dropout: float,
        residual: bool = True,
    ) -> None:
        """`cross`: the attention of each layer to the source; none without a source."""
        super().__init__()
        self.input_dim = self.output_dim = model_dim
        self.has_source = bool(cross)
        self.positions, self.residual = positions, residual
        self.layers = Stack(layers)
        self.cross = Stack(cross)
        self.dropout = Dropout(dropout)

    def decode(
        self, x: Float[Tensor, "N D"], packing: Packing, source: Source | None, inputs: list[Tensor] | None = None
    ) -> Float[Tensor, "N E"]:
        """Whole targets, packed."""
        if self.positions is not None:
            x = encode_positions(self.positions, x, packing)
        for index, layer in enumerate(self.layers):
            if inputs is not None:
                inputs.append(x)
            h = self.layers.run(layer, self.dropout(x), packing)
            if source is not None:
                h = _add(h, self.cross[index](h, source.states, source.pairing))
            x = _add(x, h) if self.residual else h
        return x

    def _start(self, memory: Encoded | None, batch_size: int, capacity: int) -> ConvolutionalState:
        """Zeros before the first token, and the keys and values of the source; `capacity` is not needed."""
        inputs, positions = tuple(layer.start(batch_size) for layer in self.layers), (0,) * batch_size
        if memory is None:
            return ConvolutionalState(positions, inputs, None)
        projected = tuple(cross.project(memory.states) for cross in self.cross)
        return ConvolutionalState(positions, inputs, ProjectedSource.of(projected, memory))

    def _advance(
        self, x: Float[Tensor, "R T D"], state: DecodeState, record: list[Tensor] | None
    ) -> tuple[Float[Tensor, "R T E"], ConvolutionalState]:
        assert isinstance(state, ConvolutionalState)
        if self.positions is not None:
            x = self.positions.encode_step(x, NewTokens(state.positions, x.shape[1], x.device), PositionTable(None))
        inputs = []
        for index, layer in enumerate(self.layers):
            own = LayerState(state.inputs[index])
            h = layer(self.dropout(x), own)
            inputs.append(own.kept)
            if state.source is not None:
                seen = self.cross[index](h.flatten(0, 1), state.source.layer(index, record))
                h = _add(h, seen.view_as(h))
            x = _add(x, h) if self.residual else h
        return x, replace(state, inputs=tuple(inputs))


def _add(x: Tensor, h: Tensor) -> Tensor:
    return (x + h) * math.sqrt(0.5)
