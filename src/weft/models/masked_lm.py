"""The masked language model (SPEC T4, M8): hidden tokens from both sides. Devlin et al. 2019."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from weft.encoders.base import Encoder
from weft.nn.embeddings import OutputLayer, TokenEmbedding
from weft.types import Encoded, TokenBatch


class MaskedLanguageModel(nn.Module):
    """An encoder and a head that says which token was hidden."""

    def __init__(self, embedding: TokenEmbedding, encoder: Encoder, output: OutputLayer) -> None:
        super().__init__()
        self.embedding, self.encoder, self.output = embedding, encoder, output
        dim = encoder.output_dim
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))

    def encode(self, batch: TokenBatch, *, all_layers: bool = False) -> Encoded:
        """Contextual states."""
        encoded: Encoded = self.encoder(
            self.embedding(batch.ids), batch.mask, documents=batch.documents, all_layers=all_layers
        )
        return encoded

    def forward(self, batch: TokenBatch, hidden: Bool[Tensor, "B T"]) -> Float[Tensor, "M D"]:
        """The transformed states of the hidden positions only; `output` makes them scores."""
        states: Tensor = self.transform(self.encode(batch).states[hidden])
        return states
