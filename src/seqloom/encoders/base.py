"""The interface of all encoders."""

from abc import ABC, abstractmethod

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqloom.errors import ShapeError
from seqloom.nn.packing import Packing, masked_mean
from seqloom.types import Encoded


class Encoder(nn.Module, ABC):
    """Maps a sequence of vectors to a sequence of contextual vectors."""

    input_dim: int
    output_dim: int

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
        *,
        documents: Int[Tensor, "B T"] | None = None,
        packing: Packing | None = None,
        all_layers: bool = False,
    ) -> Encoded:
        """The contextual states of each row; padding and other documents have no influence.

        `packing` is that of the mask and the documents, where it is known already.
        """
        if x.shape[-1] != self.input_dim:
            raise ShapeError(f"x has width {x.shape[-1]} but this encoder takes {self.input_dim}")
        packing = Packing(mask, documents) if packing is None else packing
        layers, final = self.encode_to_end(packing.pack(x), packing)
        states = packing.unpack(layers[-1])
        kept = tuple(packing.unpack(layer) for layer in layers) if all_layers else ()
        if packing.has_documents:
            return Encoded(states, mask, self.summarise(states, mask), kept)
        return Encoded(states, mask, self.summarise(states, mask), kept, final, packing)

    @abstractmethod
    def encode(self, x: Float[Tensor, "N D"], packing: Packing) -> list[Float[Tensor, "N _"]]:
        """The packed states after each layer: the input first, the final states last."""

    def encode_to_end(
        self, x: Float[Tensor, "N D"], packing: Packing
    ) -> tuple[list[Float[Tensor, "N _"]], Float[Tensor, "B L P H"] | None]:
        """The same and, from an encoder that keeps it, the last state of each layer."""
        return self.encode(x, packing), None

    def summarise(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B S"]:
        """One vector for each row."""
        return masked_mean(states, mask)
