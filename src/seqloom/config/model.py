"""The model of each task: an embedding, an encoder or decoder or both, and a head."""

from typing import Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from seqloom.config.base import NonNegative, Positive, Rate, Section
from seqloom.config.stacks import (
    Activation,
    DecoderConfig,
    EncoderConfig,
    RecurrentDecoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
)


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


class _Model(Section):
    vocab_size: Positive | None = Field(None, examples=[32128])
    """Rows of the table of embeddings; absent: as many as the tokeniser has tokens."""
    embedding_dropout: Rate = 0.1
    """The share of coordinates dropped from the input embeddings while training; unless given, `size` decides."""
    word_dropout: Rate = 0.0
    """The share of whole input tokens dropped while training."""
    scale_embeddings: bool = True
    """Multiply the input embeddings by √model_dim."""
    initial_vectors: str | None = Field(None, examples=["vectors.bin"])
    """Word vectors to start the input embeddings from: word2vec or GloVe format, as wide as model_dim."""


class _EncoderModel(_Model):
    encoder: EncoderConfig = TransformerEncoderConfig()
    """The encoder: transformer, recurrent or convolutional."""


class SegmentedModel(_EncoderModel):
    """A model that may tell the parts of its input apart."""

    segments: Segments | None = None
    """Vectors for the parts of an input; absent: none."""


class LanguageModelConfig(_Model):
    """Predicts each token from those before it."""

    decoder: DecoderConfig = TransformerDecoderConfig()
    """The stack that reads the text so far: transformer, recurrent or convolutional."""
    tie_output: bool = True
    """Share the table of input embeddings with the output layer."""
    output_bias: bool = False
    """Whether the output layer learns a number for each token; other programs' language models have none."""


class MaskedLanguageModelConfig(SegmentedModel):
    """Predicts hidden tokens from both sides."""

    tie_output: bool = True
    """Share the table of input embeddings with the output layer."""
    head: bool = True
    """Whether there is a head that predicts; a model without one only embeds."""
    head_activation: Activation = "gelu"
    """The activation in the head."""
    embed: TextVector = TextVector()
    """How a text becomes one vector."""

    @model_validator(mode="after")
    def _sees_both_sides(self) -> Self:
        if self.encoder.direction != "both":
            raise ValueError(
                f'a masked language model sees both sides, but encoder.direction = "{self.encoder.direction}"'
            )
        return self


class BidirectionalLanguageModelConfig(_EncoderModel):
    """A forward and a backward language model, trained together, as in ELMo."""

    tie_output: bool = False
    """Share the table of input embeddings with the output layer."""
    head: bool = True
    """Whether there is a head that predicts; a model without one only embeds."""

    @model_validator(mode="after")
    def _direction_is_given(self) -> Self:
        if self.encoder.direction != "both":
            raise ValueError(
                "a bidirectional language model builds one encoder of each direction itself; "
                f'remove encoder.direction = "{self.encoder.direction}"'
            )
        return self


class Features(Section):
    """The states of a bidirectional language model beside the embeddings of another model: ELMo."""

    model: BidirectionalLanguageModelConfig
    """The language model, as it was trained."""
    frozen: bool = True
    """Whether it stays as it is; only how its layers are mixed is then learned."""


class FeaturedModel(SegmentedModel):
    """A model that may read more than its own embeddings."""

    features: Features | None = None
    """What `init` brings when it is the run of a bidirectional language model; absent: nothing."""


class TranslationModelConfig(_EncoderModel):
    """Reads a source, writes a target. What the decoder does not say, it takes from the encoder."""

    decoder: DecoderConfig = TransformerDecoderConfig()
    """The decoder; family, num_layers, model_dim and dropout follow the encoder unless said."""
    tie_embeddings: Literal["all", "output", "none"] = "all"
    """Share one table between source, target and output; between target and output; or not at all."""
    output_bias: bool = True
    """Whether the output layer learns a number for each token; models in T5's layout have none."""

    @model_validator(mode="before")
    @classmethod
    def _decoder_follows_encoder(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("decoder", {}), dict):
            return data
        try:
            shared = dict(TypeAdapter[EncoderConfig](EncoderConfig).validate_python(data.get("encoder", {})))
        except ValidationError:  # the encoder's faults are told once, as the encoder's
            return data
        followed = {key: shared[key] for key in ("family", "num_layers", "model_dim", "dropout") if key in shared}
        return {**data, "decoder": {**followed, **data.get("decoder", {})}}

    @model_validator(mode="after")
    def _widths_fit(self) -> Self:
        source, target = self.encoder.model_dim, self.decoder.model_dim
        if source == target:
            return self
        if self.tie_embeddings == "all":
            raise ValueError(
                f'tie_embeddings = "all" needs equal widths, but encoder.model_dim = {source} and '
                f'decoder.model_dim = {target}; use "output" or make them equal'
            )
        decoder = self.decoder
        if isinstance(decoder, RecurrentDecoderConfig) and decoder.context == "attention" and "dot" in decoder.score:
            raise ValueError(
                f'decoder.score = "{decoder.score}" needs equal widths, but encoder.model_dim = {source} and '
                f'decoder.model_dim = {target}; use "bilinear" or "additive", or make them equal'
            )
        return self


class ClassificationModelConfig(FeaturedModel):
    """One answer for a text, or for a pair of texts."""

    pooling: Literal["attention", "mean", "max", "first"] = "attention"
    """How the states of a text become one vector."""
    head_activation: Activation | None = Field(None, examples=["tanh"])
    """The activation of a layer between that vector and the answer; absent: there is no such layer."""


class TaggingModelConfig(FeaturedModel):
    """One answer for each word."""
