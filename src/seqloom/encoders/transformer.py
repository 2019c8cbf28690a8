"""The Transformer encoder: a position encoding, then N blocks. Vaswani et al. 2017."""

from jaxtyping import Float
from torch import Tensor, nn

from seqloom.encoders.base import Encoder
from seqloom.nn.packing import Packing
from seqloom.nn.positions import PositionEncoding, encode_positions
from seqloom.nn.transformer import Norm, Stack, TransformerBlock


class TransformerEncoder(Encoder):
    """A stack of blocks; a pre-norm stack ends with one more norm (Xiong et al. 2020, §3.1)."""

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
        self.positions = positions
        self.input_norm = norm.build(model_dim) if input_norm else nn.Identity()
        self.blocks = Stack(blocks)
        self.final_norm = norm.build(model_dim) if norm.position == "pre" else nn.Identity()

    def encode(self, x: Float[Tensor, "N D"], packing: Packing) -> list[Float[Tensor, "N _"]]:
        """Apply each block."""
        if self.positions is not None:
            x = encode_positions(self.positions, x, packing)
        layers = [self.input_norm(x)]
        for block in self.blocks:
            layers.append(self.blocks.run(block, layers[-1], packing))
        layers[-1] = self.final_norm(layers[-1])
        return layers
