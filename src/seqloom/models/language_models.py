"""Language models: autoregressive, masked and bidirectional."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqloom.decoders.base import Decoder
from seqloom.encoders.base import Encoder
from seqloom.errors import ConfigError
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding, embed
from seqloom.nn.feedforward import Activation, ActivationLayer
from seqloom.nn.packing import Packing, find_places, pick
from seqloom.nn.transformer import Norm
from seqloom.types import DecodeState, Encoded, TokenBatch


class LanguageModel(nn.Module):
    """Predicts each token from those before it: P(x) = Π_t P(x_t | x_<t)."""

    def __init__(self, embedding: TokenEmbedding, decoder: Decoder, output: OutputLayer) -> None:
        super().__init__()
        self.embedding, self.decoder, self.output = embedding, decoder, output

    def forward(self, batch: TokenBatch, *, layers: list[Tensor] | None = None) -> Float[Tensor, "B T D"]:
        """The state at each position, from which `output` makes scores for the next token.

        The input of each layer of the decoder is appended to `layers`.
        """
        x, packing = embed(self.embedding, batch), Packing.of(batch)
        return self.decoder(x, batch.mask, documents=batch.documents, packing=packing, layers=layers)

    def start(self, batch_size: int, capacity: int) -> DecodeState:
        """The state before the first token."""
        return self.decoder.start(None, batch_size, capacity)

    def step(self, ids: Int[Tensor, "R T"], state: DecodeState) -> tuple[Float[Tensor, "R V"], DecodeState]:
        """Scores for the token after the last of the new ones."""
        states, state = self.decoder.step(self.embedding(ids, check=False), state)
        return self.output(states[:, -1]), state


class MaskedLanguageModel(nn.Module):
    """An encoder and, unless it is only for embedding, a head that predicts hidden tokens. Devlin et al. 2019."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        encoder: Encoder,
        output: OutputLayer | None,
        activation: Activation = "gelu",
        norm_epsilon: float | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.encoder, self.output = embedding, encoder, output
        dim = encoder.output_dim
        layers = (nn.Linear(dim, dim), ActivationLayer(activation), Norm(epsilon=norm_epsilon).build(dim))
        self.transform = None if output is None else nn.Sequential(*layers)

    def encode(self, batch: TokenBatch, *, all_layers: bool = False) -> Encoded:
        """The contextual states of a text."""
        x, packing = embed(self.embedding, batch, batch.documents), Packing.of(batch)
        return self.encoder(x, batch.mask, documents=batch.documents, packing=packing, all_layers=all_layers)

    def forward(self, batch: TokenBatch, hidden: Bool[Tensor, "B T"] | Int[Tensor, "M"]) -> Float[Tensor, "M D"]:
        """The transformed states of the hidden positions only, from which `output` makes scores.

        `hidden` says of each position whether it is hidden, or lists those that are, row by row.
        """
        if self.transform is None:
            raise ConfigError("model.head = false: this model only embeds; it cannot predict hidden tokens")
        places = find_places(hidden, batch.ids.device) if hidden.dtype is torch.bool else hidden
        return self.transform(pick(self.encode(batch).states, places))


class BidirectionalLanguageModel(nn.Module):
    """ELMo's language model: a forward and a backward encoder that share an embedding and an output layer.

        L = −Σ_t log P(x_{t+1} | x_≤t)  −  Σ_t log P(x_{t−1} | x_≥t)                 Peters et al. 2018, §3.1

    The features of a token are its layers [v; v], [h→₁; h←₁], …, which a task mixes with learned weights.
    """

    def __init__(
        self, embedding: TokenEmbedding, forwards: Encoder, backwards: Encoder, output: OutputLayer | None
    ) -> None:
        super().__init__()
        self.embedding, self.forwards, self.backwards, self.output = embedding, forwards, backwards, output

    def forward(self, batch: TokenBatch) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
        """The forward states, which predict the next token, and the backward states, which predict the one before."""
        forwards, backwards = self._encode(batch, all_layers=False)
        return forwards.states, backwards.states

    def read_forwards(self, batch: TokenBatch) -> Float[Tensor, "B T D"]:
        """The forward states alone."""
        return self.forwards(embed(self.embedding, batch), batch.mask, packing=Packing.of(batch)).states

    def encode(self, batch: TokenBatch) -> Encoded:
        """The states of both directions, concatenated in each layer."""
        ways = self._encode(batch, all_layers=True)
        layers = tuple(torch.cat(pair, dim=-1) for pair in zip(ways[0].layers, ways[1].layers, strict=True))
        return Encoded(layers[-1], batch.mask, torch.cat([way.summary for way in ways], dim=-1), layers)

    def _encode(self, batch: TokenBatch, *, all_layers: bool) -> list[Encoded]:
        x, known = embed(self.embedding, batch), {"documents": batch.documents, "packing": Packing.of(batch)}
        return [way(x, batch.mask, **known, all_layers=all_layers) for way in (self.forwards, self.backwards)]
