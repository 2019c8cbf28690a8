"""The convolutional encoder: stacked gated convolutions with residuals. Gehring et al. 2017, §3."""

import math

from jaxtyping import Float
from torch import Tensor

from seqloom.encoders.base import Encoder
from seqloom.nn.convolution import GatedConvolution
from seqloom.nn.dropout import Dropout
from seqloom.nn.packing import Packing
from seqloom.nn.positions import PositionEncoding
from seqloom.nn.transformer import Stack
from seqloom.types import Direction


class ConvolutionalEncoder(Encoder):
    """Gated convolutions: after n layers of width k, a position has seen n(k − 1) + 1 inputs."""

    def __init__(
        self,
        positions: PositionEncoding | None,
        *,
        model_dim: int,
        num_layers: int,
        kernel: int,
        direction: Direction,
        dropout: float,
    ) -> None:
        super().__init__()
        self.input_dim = self.output_dim = model_dim
        self.positions = positions
        self.layers = Stack(GatedConvolution(model_dim, model_dim, kernel, direction) for _ in range(num_layers))
        self.dropout = Dropout(dropout)

    def encode(self, x: Float[Tensor, "N D"], packing: Packing) -> list[Float[Tensor, "N _"]]:
        """Apply each layer with a residual; √½ keeps the variance of the sum."""
        if self.positions is not None:
            x = self.positions.encode_input(x, packing.positions, packing.token_lengths)
        layers = [x]
        for layer in self.layers:
            layers.append((layers[-1] + self.layers.run(layer, self.dropout(layers[-1]), packing)) * math.sqrt(0.5))
        return layers
