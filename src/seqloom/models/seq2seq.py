"""The encoder-decoder: any encoder with any decoder. Sutskever et al. 2014; Vaswani et al. 2017."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.decoders.base import Decoder
from seqloom.encoders.base import Encoder
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding, embed
from seqloom.nn.packing import Packing
from seqloom.types import DecodeState, Encoded, PairBatch, TokenBatch


class Seq2Seq(nn.Module):
    """Encodes the source once, then predicts the target token by token."""

    def __init__(
        self,
        source_embedding: TokenEmbedding,
        encoder: Encoder,
        target_embedding: TokenEmbedding,
        decoder: Decoder,
        output: OutputLayer,
    ) -> None:
        super().__init__()
        self.source_embedding, self.encoder = source_embedding, encoder
        self.target_embedding, self.decoder = target_embedding, decoder
        self.output = output

    def encode(self, source: TokenBatch, *, all_layers: bool = False) -> Encoded:
        """The source's contextual states."""
        x, packing = embed(self.source_embedding, source), Packing.of(source)
        return self.encoder(x, source.mask, documents=source.documents, packing=packing, all_layers=all_layers)

    def forward(self, batch: PairBatch) -> Float[Tensor, "B T D"]:
        """The state at each target position, all at once under the causal mask; `output` turns states into scores."""
        target, memory = batch.target, self.encode(batch.source)
        x, packing = embed(self.target_embedding, target), Packing.of(target)
        return self.decoder(x, target.mask, memory, documents=target.documents, packing=packing)

    def align(self, batch: PairBatch) -> Float[Tensor, "B T S"] | None:
        """The attention weights over the source, in the last layer that has them; None if none has."""
        if not self.decoder.attends:
            return None
        return self.decoder.attend_source(embed(self.target_embedding, batch.target), self.encode(batch.source))

    def start(self, memory: Encoded, capacity: int, *, attention: bool = False) -> DecodeState:
        """The state before the first target token; with `attention`, each step gives its attention weights."""
        return self.decoder.start(memory, memory.states.shape[0], capacity, attention=attention)

    def step(self, ids: Int[Tensor, "R T"], state: DecodeState) -> tuple[Float[Tensor, "R V"], DecodeState]:
        """Scores for the token after the last of the new ones."""
        states, state = self.decoder.step(self.target_embedding(ids, check=False), state)
        return self.output(states[:, -1]), state
