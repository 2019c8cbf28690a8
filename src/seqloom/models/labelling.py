"""Classifiers and taggers: a label for a text, or for each of its tokens."""

from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.encoders.base import Encoder
from seqloom.errors import ShapeError
from seqloom.models.language_models import BidirectionalLanguageModel
from seqloom.nn.attention import Pool
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import TokenEmbedding, embed
from seqloom.nn.feedforward import Activation, ActivationLayer
from seqloom.nn.packing import Packing
from seqloom.types import Encoded, TokenBatch


class ScalarMix(nn.Module):
    """A learned mixture of a network's layers: γ Σ_l softmax(w)_l h_l. Peters et al. 2018, eq. 1."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: tuple[Float[Tensor, "*N D"], ...]) -> Float[Tensor, "*N D"]:
        """The mixture; it starts as the mean."""
        if len(layers) != len(self.weights):
            raise ShapeError(f"layers holds {len(layers)} tensors but the mix was built for {len(self.weights)}")
        return self.scale * torch.einsum("l,l...->...", self.weights.softmax(0), torch.stack(layers))


class Features(nn.Module):
    """ELMo's features as part of another model's input: x = W [v; γ Σ_l softmax(s)_l h_l].  Peters et al. 2018, §3.3.

    v is the model's own embedding of a token, h_l layer l of a bidirectional language model; s, γ and W are learned.
    """

    def __init__(
        self, reader: BidirectionalLanguageModel, num_layers: int, dim: int, *, frozen: bool, dropout: float
    ) -> None:
        super().__init__()
        self.reader, self.frozen = reader.requires_grad_(not frozen), frozen
        self.mix = ScalarMix(1 + num_layers)
        self.dropout = Dropout(dropout)
        self.join = nn.Linear(dim + 2 * reader.forwards.output_dim, dim)

    def forward(self, x: Float[Tensor, "B T D"], batch: TokenBatch) -> Float[Tensor, "B T D"]:
        """The embeddings of a batch, combined with its features."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            layers = self.reader.encode(batch).layers
        return self.join(torch.cat([x, self.dropout(self.mix(layers))], dim=-1))

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a frozen reader stays in evaluation mode, without dropout."""
        super().train(mode)
        self.reader.train(mode and not self.frozen)
        return self


class _Labeller(nn.Module):
    """An encoder over embeddings, with the features of a language model if there is one."""

    def __init__(self, embedding: TokenEmbedding, encoder: Encoder, features: Features | None) -> None:
        super().__init__()
        self.embedding, self.features, self.encoder = embedding, features, encoder

    def encode(self, batch: TokenBatch, *, all_layers: bool = False) -> Encoded:
        """The states of a text."""
        x, packing = embed(self.embedding, batch, batch.documents), Packing.of(batch)
        x = x if self.features is None else self.features(x, batch)
        return self.encoder(x, batch.mask, documents=batch.documents, packing=packing, all_layers=all_layers)


class Classifier(_Labeller):
    """Scores for a text: an encoder, pooling, and one or two linear layers. With a single output it is a regression.

    A pair of texts is one sequence with a separator in between.
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        encoder: Encoder,
        pool: Pool,
        num_outputs: int,
        dropout: float,
        activation: Activation | None = None,
        features: Features | None = None,
    ) -> None:
        super().__init__(embedding, encoder, features)
        self.pool, dim = pool, encoder.output_dim
        self.transform = (
            nn.Identity() if activation is None else nn.Sequential(nn.Linear(dim, dim), ActivationLayer(activation))
        )
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(dim, num_outputs)

    def forward(self, batch: TokenBatch) -> Float[Tensor, "B C"]:
        """The score of each label."""
        encoded = self.encode(batch)
        return self.head(self.dropout(self.transform(self.pool(encoded.states, encoded.mask))))


class Tagger(_Labeller):
    """Scores for each token: an encoder, and a linear layer at every position.

    A word of several tokens has the tag of its first token; the data mark which that is.
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        encoder: Encoder,
        num_tags: int,
        dropout: float,
        features: Features | None = None,
    ) -> None:
        super().__init__(embedding, encoder, features)
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(encoder.output_dim, num_tags)

    def forward(self, batch: TokenBatch) -> Float[Tensor, "B T C"]:
        """The score of each tag at each token."""
        return self.head(self.dropout(self.encode(batch).states))
