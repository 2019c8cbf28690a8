"""One answer for each token: an encoder and a linear layer at every position."""

from jaxtyping import Float
from torch import Tensor, nn

from seqloom.encoders.base import Encoder
from seqloom.models.features import Features
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.types import Encoded, TokenBatch


class Tagger(nn.Module):
    """Of a word in several tokens, the first one speaks; which that is, the data say."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        encoder: Encoder,
        num_tags: int,
        dropout: float,
        features: Features | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.features, self.encoder = embedding, features, encoder
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(encoder.output_dim, num_tags)

    def encode(self, batch: TokenBatch, *, all_layers: bool = False) -> Encoded:
        """The states of a text."""
        x = self.embedding(batch.ids, batch.documents)
        x = x if self.features is None else self.features(x, batch)
        encoded: Encoded = self.encoder(x, batch.mask, documents=batch.documents, all_layers=all_layers)
        return encoded

    def forward(self, batch: TokenBatch) -> Float[Tensor, "B T C"]:
        """Scores of each tag at each token."""
        encoded = self.encode(batch)
        scores: Tensor = self.head(self.dropout(encoded.states))
        return scores
