"""One answer for a text: an encoder, a pooling, a linear layer or two. One output is regression."""

from jaxtyping import Float
from torch import Tensor, nn

from seqloom.encoders.base import Encoder
from seqloom.models.features import Features
from seqloom.nn.bend import Bend, Bending
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.nn.pooling import Pool
from seqloom.types import Encoded, TokenBatch


class Classifier(nn.Module):
    """A pair of texts is one sequence with a separator in it."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        encoder: Encoder,
        pool: Pool,
        num_outputs: int,
        dropout: float,
        bend: Bend | None = None,
        features: Features | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.features, self.encoder, self.pool = embedding, features, encoder, pool
        dim = encoder.output_dim
        self.transform = nn.Identity() if bend is None else nn.Sequential(nn.Linear(dim, dim), Bending(bend))
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(encoder.output_dim, num_outputs)

    def encode(self, batch: TokenBatch, *, all_layers: bool = False) -> Encoded:
        """The states of a text."""
        x = self.embedding(batch.ids, batch.documents)
        x = x if self.features is None else self.features(x, batch)
        encoded: Encoded = self.encoder(x, batch.mask, documents=batch.documents, all_layers=all_layers)
        return encoded

    def forward(self, batch: TokenBatch) -> Float[Tensor, "B C"]:
        """Scores of each label."""
        encoded = self.encode(batch)
        scores: Tensor = self.head(self.dropout(self.transform(self.pool(encoded.states, encoded.mask))))
        return scores
