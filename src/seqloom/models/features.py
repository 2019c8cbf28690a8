"""ELMo's features in another model: x = W [v; γ Σ_l softmax(s)_l h_l].  Peters et al. 2018, §3.3.

v is the model's own embedding of a token, h_l layer l of a bidirectional language model; s, γ and W are learned.
"""

from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.models.bilm import BidirectionalLanguageModel
from seqloom.nn.dropout import Dropout
from seqloom.nn.mix import ScalarMix
from seqloom.types import TokenBatch


class Features(nn.Module):
    """Adds to each embedding what a language model knows of the token in its context."""

    def __init__(
        self, reader: BidirectionalLanguageModel, num_layers: int, dim: int, *, frozen: bool, dropout: float
    ) -> None:
        super().__init__()
        self.reader, self.frozen = reader.requires_grad_(not frozen), frozen
        self.mix = ScalarMix(1 + num_layers)
        self.dropout = Dropout(dropout)
        self.join = nn.Linear(dim + 2 * reader.forwards.output_dim, dim)

    def forward(self, x: Float[Tensor, "B T D"], batch: TokenBatch) -> Float[Tensor, "B T D"]:
        """The embeddings of a batch, with its features."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            layers = self.reader.encode(batch).layers
        joined: Tensor = self.join(torch.cat([x, self.dropout(self.mix(layers))], dim=-1))
        return joined

    def train(self, mode: bool = True) -> Self:
        """A frozen reader reads as it does in use: without dropout."""
        super().train(mode)
        self.reader.train(mode and not self.frozen)
        return self
