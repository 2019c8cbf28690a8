"""The recurrent encoder: stacked layers, with forward and backward states concatenated. Schuster & Paliwal 1997."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqloom.encoders.base import Encoder
from seqloom.nn.dropout import Dropout
from seqloom.nn.packing import Packing, first_real
from seqloom.nn.recurrent import Cell, RecurrentLayer
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
    ) -> None:
        super().__init__()
        self.input_dim = self.output_dim = model_dim
        self.residual = residual
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
        layers = [x]
        for index, ways in enumerate(self.layers):
            inputs = layers[-1] if index == 0 else self.dropout(layers[-1])
            out = torch.cat([way(inputs, packing) for way in ways], dim=1)
            layers.append(layers[-1] + out if self.residual and index else out)
        layers[-1] = self.dropout(layers[-1])
        return layers

    def summarise(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B S"]:
        """The final state of each direction: at the last token forwards, at the first token backwards."""
        ways = self.layers[-1]
        parts = states.split([way.hidden_dim for way in ways], dim=2)
        ends = [
            first_real(part, mask) if way.reverse else first_real(part.flip(1), mask.flip(1))
            for way, part in zip(ways, parts, strict=True)
        ]
        return torch.cat(ends, dim=1)
