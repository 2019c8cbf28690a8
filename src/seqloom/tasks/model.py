"""What the model sections of the tasks share: the keys of embeddings and encoders, and how they become modules."""

from typing import Literal

from pydantic import Field
from torch import nn

from seqloom.config.base import NonNegative, Positive, Rate, Section
from seqloom.config.stacks import EncoderConfig, TransformerEncoderConfig
from seqloom.errors import ConfigError
from seqloom.nn.embeddings import SegmentEmbedding, TokenEmbedding


class Segments(Section):
    """A vector for each part of an input, as BERT has them for the two texts of a pair."""

    count: Positive = 2
    """How many parts are told apart."""
    separator: NonNegative = 6
    """The id of the token that ends a part; in Seqloom's own tokenisers [SEP] is 6."""


class TextVector(Section):
    """How the states of a text become its one vector in `embed`."""

    pooling: Literal["mean", "max", "first"] = "mean"
    """The mean of the states, the largest of each coordinate, or the first."""
    normalise: bool = False
    """Whether the vector is scaled to length 1."""


class ModelSection(Section):
    """The keys of every model."""

    vocab_size: Positive | None = Field(None, examples=[32128])
    """Rows of the table of embeddings; absent: as many as the tokeniser has tokens."""
    embedding_dropout: Rate = 0.1
    """The share of coordinates dropped from the input embeddings while training; unless given, `size` decides."""
    word_dropout: Rate = 0.0
    """The share of whole input tokens dropped while training."""
    embedding_dim: Positive | None = Field(None, examples=[64])
    """The width of the table of embeddings, which a linear map projects to model_dim, and a tied output layer back
    (factorised embeddings, as in ALBERT); absent: model_dim, without a projection."""
    scale_embeddings: bool = True
    """Multiply the input embeddings by √model_dim."""
    initial_vectors: str | None = Field(None, examples=["vectors.bin"])
    """Word vectors to start the input embeddings from: word2vec or GloVe format, as wide as embedding_dim or
    else model_dim."""

    def build(self, vocab_size: int, num_outputs: int | None = None) -> nn.Module:
        """The network for a tokeniser of so many tokens; `num_outputs` is the number of labels or tags."""
        raise NotImplementedError

    def count_rows(self, vocab_size: int, key: str = "vocab_size") -> int:
        """The rows of the embedding: as many as the tokeniser needs, or as the configuration says."""
        rows: int | None = getattr(self, key)
        if rows is not None and rows < vocab_size:
            raise ConfigError(f"model.{key} = {rows}, but the tokeniser has {vocab_size} tokens")
        return vocab_size if rows is None else rows

    def build_embedding(self, rows: int, dim: int) -> TokenEmbedding:
        """A table of token vectors."""
        return TokenEmbedding(
            rows,
            dim,
            scale=self.scale_embeddings,
            dropout=self.embedding_dropout,
            word_dropout=self.word_dropout,
            segments=self.build_segments(dim),
            table_dim=self.embedding_dim,
        )

    def build_segments(self, dim: int) -> SegmentEmbedding | None:
        """A table of the vectors of the parts of an input, for models that tell them apart."""
        return None


class EncoderModel(ModelSection):
    """A model that has an encoder."""

    encoder: EncoderConfig = TransformerEncoderConfig()
    """The encoder: transformer, recurrent or convolutional."""


class SegmentedModel(EncoderModel):
    """A model that may tell the parts of its input apart."""

    segments: Segments | None = Field(None, examples=[{"count": 2}])
    """Vectors for the parts of an input; absent: none."""

    def build_segments(self, dim: int) -> SegmentEmbedding | None:
        """As many vectors as there are parts."""
        segments = self.segments
        return None if segments is None else SegmentEmbedding(segments.count, dim, segments.separator)
