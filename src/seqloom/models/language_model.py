"""The autoregressive language model: P(x) = Π_t P(x_t | x_<t)."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.decoders.base import Decoder
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.types import DecodeState, TokenBatch


class LanguageModel(nn.Module):
    """Predicts each token from those before it."""

    def __init__(self, embedding: TokenEmbedding, decoder: Decoder, output: OutputLayer) -> None:
        super().__init__()
        self.embedding, self.decoder, self.output = embedding, decoder, output

    def forward(self, batch: TokenBatch, *, layers: list[Tensor] | None = None) -> Float[Tensor, "B T D"]:
        """The state at each position; `output` makes it scores for the token after.

        What goes into each layer of the decoder goes into `layers`.
        """
        x = self.embedding(batch.ids)
        states: Tensor = self.decoder(x, batch.mask, documents=batch.documents, layers=layers)
        return states

    def start(self, batch_size: int, capacity: int) -> DecodeState:
        """The state before the first token."""
        return self.decoder.start(None, batch_size, capacity)

    def step(self, ids: Int[Tensor, "R T"], state: DecodeState) -> tuple[Float[Tensor, "R V"], DecodeState]:
        """Scores for the token after the last of the new ones."""
        states, state = self.decoder.step(self.embedding(ids, check=False), state)
        return self.output(states[:, -1]), state
