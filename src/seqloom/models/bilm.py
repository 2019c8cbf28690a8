"""The bidirectional language model of ELMo: two one-way encoders over one embedding, trained together.

    L = −Σ_t log P(x_{t+1} | x_≤t)  −  Σ_t log P(x_{t−1} | x_≥t)                 Peters et al. 2018, §3.1

The features of a token are [v; h→; h←]; a task mixes the layers [v; v], [h→₁; h←₁], … with learned weights.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.encoders.base import Encoder
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.types import Encoded, TokenBatch


class BidirectionalLanguageModel(nn.Module):
    """One encoder reads on, the other reads back; the output layer is shared."""

    def __init__(
        self, embedding: TokenEmbedding, forwards: Encoder, backwards: Encoder, output: OutputLayer | None
    ) -> None:
        super().__init__()
        self.embedding, self.forwards, self.backwards, self.output = embedding, forwards, backwards, output

    def forward(self, batch: TokenBatch) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
        """The forward states, which predict the next token, and the backward ones, which predict the one before."""
        x = self.embedding(batch.ids)
        ahead, behind = (way(x, batch.mask, documents=batch.documents) for way in (self.forwards, self.backwards))
        return ahead.states, behind.states

    def encode(self, batch: TokenBatch) -> Encoded:
        """Both directions side by side, layer by layer."""
        x = self.embedding(batch.ids)
        ways = [
            way(x, batch.mask, documents=batch.documents, all_layers=True) for way in (self.forwards, self.backwards)
        ]
        layers = tuple(torch.cat(pair, dim=-1) for pair in zip(ways[0].layers, ways[1].layers, strict=True))
        return Encoded(layers[-1], batch.mask, torch.cat([way.summary for way in ways], dim=-1), layers)
