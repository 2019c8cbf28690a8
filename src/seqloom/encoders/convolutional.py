"""The convolutional encoder: stacked convolutions with residuals. Gehring et al. 2017, §3."""

import math

from jaxtyping import Float
from torch import Tensor

from seqloom.encoders.base import Encoder
from seqloom.nn.convolution import Convolution
from seqloom.nn.dropout import Dropout
from seqloom.nn.packing import Packing
from seqloom.nn.positions import PositionEncoding, encode_positions
from seqloom.nn.transformer import Stack


class ConvolutionalEncoder(Encoder):
    """A stack of convolutions; nn/convolution.py says how far a position sees."""

    def __init__(
        self,
        layers: list[Convolution],
        positions: PositionEncoding | None,
        *,
        model_dim: int,
        dropout: float,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.input_dim = self.output_dim = model_dim
        self.positions, self.residual = positions, residual
        self.layers = Stack(layers)
        self.dropout = Dropout(dropout)

    def encode(self, x: Float[Tensor, "N D"], packing: Packing) -> list[Float[Tensor, "N _"]]:
        """Apply each layer; √½ keeps the variance of the sum."""
        if self.positions is not None:
            x = encode_positions(self.positions, x, packing)
        layers = [x]
        for layer in self.layers:
            h = self.layers.run(layer, self.dropout(layers[-1]), packing)
            layers.append((layers[-1] + h) * math.sqrt(0.5) if self.residual else h)
        return layers
