"""The model of a task from its configuration."""

from typing import assert_never

from torch import nn

from seqloom.config.model import (
    BidirectionalLanguageModelConfig,
    ClassificationModelConfig,
    FeaturedModel,
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    SegmentedModel,
    TaggingModelConfig,
    TranslationModelConfig,
)
from seqloom.config.stacks import TransformerEncoderConfig
from seqloom.errors import ConfigError
from seqloom.models.labelling import Classifier, Features, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.models.stacks import build_decoder, build_encoder
from seqloom.nn.embeddings import OutputLayer, SegmentEmbedding, TokenEmbedding
from seqloom.nn.pooling import Pool

ModelConfig = (
    LanguageModelConfig
    | MaskedLanguageModelConfig
    | BidirectionalLanguageModelConfig
    | TranslationModelConfig
    | ClassificationModelConfig
    | TaggingModelConfig
)


def build_model(config: ModelConfig, vocab_size: int, num_outputs: int | None = None) -> nn.Module:
    """`num_outputs` is the size of what the model predicts: the target vocabulary, the labels, the tags."""
    vocab_size = _count_rows(config, vocab_size)
    num_outputs = vocab_size if num_outputs is None else num_outputs
    match config:
        case LanguageModelConfig():
            decoder = build_decoder(config.decoder, None)
            embedding = _embed(config, vocab_size, decoder.input_dim)
            tied = embedding if config.tie_output else None
            output = OutputLayer(decoder.output_dim, vocab_size, tied, bias=config.output_bias)
            return LanguageModel(embedding, decoder, output)
        case MaskedLanguageModelConfig():
            encoder = build_encoder(config.encoder)
            embedding = _embed(config, vocab_size, encoder.input_dim)
            output = OutputLayer(encoder.output_dim, vocab_size, embedding if config.tie_output else None)
            epsilon = config.encoder.norm_epsilon if isinstance(config.encoder, TransformerEncoderConfig) else None
            return MaskedLanguageModel(
                embedding, encoder, output if config.head else None, config.head_activation, epsilon
            )
        case BidirectionalLanguageModelConfig():
            ways = [
                build_encoder(config.encoder.model_copy(update={"direction": way})) for way in ("forward", "backward")
            ]
            embedding = _embed(config, vocab_size, ways[0].input_dim)
            output = OutputLayer(ways[0].output_dim, vocab_size, embedding if config.tie_output else None)
            return BidirectionalLanguageModel(embedding, ways[0], ways[1], output if config.head else None)
        case TranslationModelConfig():
            encoder = build_encoder(config.encoder)
            decoder = build_decoder(config.decoder, encoder.output_dim)
            source = _embed(config, vocab_size, encoder.input_dim)
            target = source if config.tie_embeddings == "all" else _embed(config, num_outputs, decoder.input_dim)
            tied = None if config.tie_embeddings == "none" else target
            output = OutputLayer(decoder.output_dim, num_outputs, tied, bias=config.output_bias)
            return Seq2Seq(source, encoder, target, decoder, output)
        case ClassificationModelConfig():
            encoder = build_encoder(config.encoder)
            embedding = _embed(config, vocab_size, encoder.input_dim)
            pool = Pool(config.pooling, encoder.output_dim)
            features = _build_features(config, vocab_size, encoder.input_dim)
            return Classifier(
                embedding, encoder, pool, num_outputs, config.encoder.dropout, config.head_activation, features
            )
        case TaggingModelConfig():
            encoder = build_encoder(config.encoder)
            embedding = _embed(config, vocab_size, encoder.input_dim)
            features = _build_features(config, vocab_size, encoder.input_dim)
            return Tagger(embedding, encoder, num_outputs, config.encoder.dropout, features)
        case _ as unreachable:
            assert_never(unreachable)


def _build_features(config: FeaturedModel, vocab_size: int, dim: int) -> Features | None:
    if config.features is None:
        return None
    model, frozen = config.features.model, config.features.frozen
    reader = build_model(model.model_copy(update={"head": False}), vocab_size)
    assert isinstance(reader, BidirectionalLanguageModel)
    return Features(reader, model.encoder.num_layers, dim, frozen=frozen, dropout=config.embedding_dropout)


def _embed(config: ModelConfig, vocab_size: int, dim: int) -> TokenEmbedding:
    segments = None
    if isinstance(config, SegmentedModel) and config.segments is not None:
        segments = SegmentEmbedding(config.segments.count, dim, config.segments.separator)
    return TokenEmbedding(
        vocab_size,
        dim,
        scale=config.scale_embeddings,
        dropout=config.embedding_dropout,
        word_dropout=config.word_dropout,
        segments=segments,
    )


def _count_rows(config: ModelConfig, vocab_size: int) -> int:
    """The rows of the embedding: as many as the tokeniser needs, or as the configuration says."""
    if config.vocab_size is not None and config.vocab_size < vocab_size:
        raise ConfigError(f"model.vocab_size = {config.vocab_size}, but the tokeniser has {vocab_size} tokens")
    return vocab_size if config.vocab_size is None else config.vocab_size
