"""The recurrent encoder: stacked layers, with forward and backward states concatenated. Schuster & Paliwal 1997."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqloom.encoders.base import Encoder
from seqloom.nn.dropout import Dropout
from seqloom.nn.packing import Packing, first_real
from seqloom.nn.recurrent import Cell, RecurrentLayer, State
from seqloom.nn.transformer import Stack
from seqloom.types import Direction


class RecurrentEncoder(Encoder):
    """A stack of RNN, GRU or LSTM layers; with both directions, each has half of the width."""

    def __init__(
        self,
        cell: Cell,
        *,
        model_dim: int,
        num_layers: int,
        direction: Direction,
        residual: bool,
        dropout: float,
        memory_dim: int | None = None,
        clip: float | None = None,
        keep_final: bool = False,
    ) -> None:
        """With `keep_final`, the last state of each layer is kept, for a decoder that takes it over."""
        super().__init__()
        self.input_dim = self.output_dim = model_dim
        self.residual, self.keep_final = residual, keep_final
        ways = {"both": (False, True), "forward": (False,), "backward": (True,)}[direction]
        self.layers = Stack(
            Stack(
                RecurrentLayer(
                    cell, model_dim, model_dim // len(ways), reverse=reverse, memory_dim=memory_dim, clip=clip
                )
                for reverse in ways
            )
            for _ in range(num_layers)
        )
        self.dropout = Dropout(dropout)

    def encode(self, x: Float[Tensor, "N D"], packing: Packing) -> list[Float[Tensor, "N _"]]:
        """Apply each layer, in its directions."""
        return self.encode_to_end(x, packing)[0]

    def encode_to_end(
        self, x: Float[Tensor, "N D"], packing: Packing
    ) -> tuple[list[Float[Tensor, "N _"]], Float[Tensor, "B L P H"] | None]:
        """The same and, if it is kept, the last state of each layer, those of two directions concatenated.

        A direction ends where it has read every token: backwards, at the first.
        """
        layers, final = [x], []
        for index, ways in enumerate(self.layers):
            inputs = layers[-1] if index == 0 else self.dropout(layers[-1])
            ends: list[State] = []
            more = {"final": ends} if self.keep_final else {}
            out = torch.cat([way(inputs, packing, **more) for way in ways], dim=1)
            if self.keep_final:
                final.append(torch.cat(ends, dim=-1))
            layers.append(layers[-1] + out if self.residual and index else out)
        layers[-1] = self.dropout(layers[-1])
        return layers, torch.stack(final, dim=1) if final else None

    def summarise(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B S"]:
        """The final state of each direction: at the last token forwards, at the first token backwards."""
        ways = self.layers[-1]
        parts = states.split([way.hidden_dim for way in ways], dim=2)
        ends = [
            first_real(part, mask) if way.reverse else first_real(part.flip(1), mask.flip(1))
            for way, part in zip(ways, parts, strict=True)
        ]
        return torch.cat(ends, dim=1)
