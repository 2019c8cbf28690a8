"""The one interface of everything that contextualises a sequence."""

from abc import ABC, abstractmethod

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqloom.errors import ShapeError
from seqloom.nn.packing import Packing, masked_mean
from seqloom.types import Encoded


class Encoder(nn.Module, ABC):
    """One sequence of vectors in, one contextual vector a position out."""

    input_dim: int
    output_dim: int

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
        *,
        documents: Int[Tensor, "B T"] | None = None,
        all_layers: bool = False,
    ) -> Encoded:
        """Contextualise each row; nothing looks at padding or across documents."""
        if x.shape[-1] != self.input_dim:
            raise ShapeError(f"x has width {x.shape[-1]} but this encoder takes {self.input_dim}")
        if x.shape[:2] != mask.shape:
            raise ShapeError(f"mask has shape {tuple(mask.shape)} but x has {tuple(x.shape[:2])} (rows, tokens)")
        packing = Packing(mask, documents)
        layers = self.encode(packing.pack(x), packing)
        states = packing.unpack(layers[-1])
        kept = tuple(packing.unpack(layer) for layer in layers) if all_layers else ()
        return Encoded(states, mask, self.summarise(states, mask), kept)

    @abstractmethod
    def encode(self, x: Float[Tensor, "N D"], packing: Packing) -> list[Float[Tensor, "N _"]]:
        """The packed input after each layer, the input itself first, the finished states last."""

    def summarise(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B S"]:
        """One vector a row."""
        return masked_mean(states, mask)
