"""The masked language model: hidden tokens from both sides. Devlin et al. 2019."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqloom.encoders.base import Encoder
from seqloom.errors import ConfigError
from seqloom.nn.bend import Bend, Bending
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.residual import build_norm
from seqloom.types import Encoded, TokenBatch


class MaskedLanguageModel(nn.Module):
    """An encoder and, unless it only embeds, a head that says which token was hidden."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        encoder: Encoder,
        output: OutputLayer | None,
        bend: Bend = "gelu",
        norm_epsilon: float | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.encoder, self.output = embedding, encoder, output
        dim = encoder.output_dim
        layers = (nn.Linear(dim, dim), Bending(bend), build_norm("layer", dim, norm_epsilon))
        self.transform = None if output is None else nn.Sequential(*layers)

    def encode(self, batch: TokenBatch, *, all_layers: bool = False) -> Encoded:
        """Contextual states."""
        encoded: Encoded = self.encoder(
            self.embedding(batch.ids, batch.documents), batch.mask, documents=batch.documents, all_layers=all_layers
        )
        return encoded

    def forward(self, batch: TokenBatch, hidden: Bool[Tensor, "B T"]) -> Float[Tensor, "M D"]:
        """The transformed states of the hidden positions only; `output` makes them scores."""
        if self.transform is None:
            raise ConfigError("model.head = false: this model only embeds, it cannot say which token was hidden")
        states: Tensor = self.transform(self.encode(batch).states[hidden])
        return states
