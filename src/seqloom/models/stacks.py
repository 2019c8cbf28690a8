"""Building encoders and decoders from their configuration: the one place that maps its words to classes."""

from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from seqloom.config import positions as sections
from seqloom.config import stacks as configs
from seqloom.decoders.base import Decoder
from seqloom.decoders.convolutional import ConvolutionalDecoder
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.base import Encoder
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.nn import positions as nn_positions
from seqloom.nn.attention import Additive, Bilinear, Dot, ScaledDot, Score
from seqloom.nn.convolution import Convolution, GatedConvolution
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.positions import PositionEncoding
from seqloom.nn.scored_attention import ScoredCrossAttention, ScoredSelfAttention
from seqloom.nn.transformer import Norm, TransformerBlock
from seqloom.types import Direction

TransformerConfig = configs.TransformerEncoderConfig | configs.TransformerDecoderConfig


def build_encoder(config: configs.EncoderConfig, *, keep_final: bool = False) -> Encoder:
    """An encoder of the configured family; with `keep_final`, a recurrent one gives its last state to a decoder."""
    match config:
        case configs.TransformerEncoderConfig():
            return TransformerEncoder(
                *build_blocks(config, config.direction, None), model_dim=config.model_dim, input_norm=config.input_norm
            )
        case configs.RecurrentEncoderConfig():
            return RecurrentEncoder(
                config.cell,
                model_dim=config.model_dim,
                num_layers=config.num_layers,
                direction=config.direction,
                residual=config.residual,
                dropout=config.dropout,
                memory_dim=config.memory_dim,
                clip=config.clip,
                keep_final=keep_final,
            )
        case configs.ConvolutionalEncoderConfig():
            positions = build_positions(config.positions, config.model_dim)
            return ConvolutionalEncoder(
                build_convolutions(config, config.direction),
                positions,
                model_dim=config.model_dim,
                dropout=config.dropout,
                residual=config.residual,
            )
        case _ as unreachable:
            assert_never(unreachable)


def build_decoder(config: configs.DecoderConfig, memory_dim: int | None) -> Decoder:
    """A decoder of the configured family; `memory_dim` is the width of its source, if it has one."""
    match config:
        case configs.TransformerDecoderConfig():
            return TransformerDecoder(
                *build_blocks(config, "forward", memory_dim), model_dim=config.model_dim, input_norm=config.input_norm
            )
        case configs.RecurrentDecoderConfig():
            return RecurrentDecoder(
                config.cell,
                model_dim=config.model_dim,
                num_layers=config.num_layers,
                memory_dim=memory_dim,
                context=config.context,
                score=build_score(config.score, config.model_dim, memory_dim or config.model_dim),
                residual=config.residual,
                dropout=config.dropout,
                bridge=config.bridge,
            )
        case configs.ConvolutionalDecoderConfig():
            positions = build_positions(config.positions, config.model_dim)
            return ConvolutionalDecoder(
                build_convolutions(config, "forward"),
                [] if memory_dim is None else [build_cross(config, memory_dim) for _ in range(config.num_layers)],
                positions,
                model_dim=config.model_dim,
                dropout=config.dropout,
                residual=config.residual,
            )
        case _ as unreachable:
            assert_never(unreachable)


def build_blocks(
    config: TransformerConfig, direction: Direction, memory_dim: int | None
) -> tuple[list[TransformerBlock], PositionEncoding | None, Norm]:
    """The blocks of a stack, its position encoding if that acts on the input, and its norm."""
    dim, heads = config.model_dim, config.num_heads
    norm = Norm(config.norm, config.norm_position, config.norm_epsilon)

    def build(relative: PositionEncoding | None) -> list[TransformerBlock]:
        return [build_block(config, direction, memory_dim, relative, norm) for _ in range(config.num_layers)]

    if isinstance(config.positions, sections.InputSection):
        return build(None), build_positions(config.positions, dim), norm
    causal, head_dim = direction != "both", config.head_dim or dim // heads
    positions = build_positions(config.positions, dim, heads, head_dim, causal=causal)
    return build(positions), positions if positions is not None and positions.acts_on_input else None, norm


def build_block(
    config: TransformerConfig,
    direction: Direction,
    memory_dim: int | None,
    relative: PositionEncoding | None,
    norm: Norm,
) -> TransformerBlock:
    """A Transformer block, with cross-attention if there is a source."""
    dim, heads, score = config.model_dim, config.num_heads, config.score
    head_dim = config.head_dim or dim // heads
    make: Callable[..., SelfAttention] = SelfAttention
    if score != "scaled-dot":
        make = partial(ScoredSelfAttention, build_score(score, head_dim, head_dim, heads))
    attention = make(
        dim,
        heads,
        num_kv_heads=config.num_kv_heads,
        causal=direction != "both",
        reverse=direction == "backward",
        window=config.window,
        relative=relative,
        normalise_qk=config.normalise_qk,
        head_dim=config.head_dim,
        chunked=config.chunked_heads,
        bias=config.bias,
        dropout=config.attention_dropout,
    )
    cross = None
    if memory_dim is not None:
        options = {"head_dim": config.head_dim, "bias": config.bias, "dropout": config.attention_dropout}
        cross = build_cross(config, memory_dim, **options)
    feedforward = None
    if config.feedforward:
        hidden = config.hidden_dim or 4 * dim
        feedforward = FeedForward(dim, hidden, config.activation, bias=config.bias, dropout=config.dropout)
    return TransformerBlock(
        attention, cross, feedforward, model_dim=dim, norm=norm, dropout=config.dropout, residual=config.residual
    )


def build_cross(
    config: TransformerConfig | configs.ConvolutionalDecoderConfig, memory_dim: int, **options: Any
) -> CrossAttention:
    """Attention to a source of this width."""
    dim, heads, score = config.model_dim, config.num_heads, config.score
    make: Callable[..., CrossAttention] = CrossAttention
    if score != "scaled-dot":
        head_dim = options.get("head_dim") or dim // heads
        make = partial(ScoredCrossAttention, build_score(score, head_dim, head_dim, heads))
    return make(dim, memory_dim, heads, chunked=config.chunked_heads, **options)


def build_convolutions(
    config: configs.ConvolutionalEncoderConfig | configs.ConvolutionalDecoderConfig, direction: Direction
) -> list[Convolution]:
    """The layers of a stack; each has `dilation_base` times the dilation of the layer before."""
    make, dim, base = GatedConvolution if config.gate else Convolution, config.model_dim, config.dilation_base
    return [make(dim, dim, config.kernel, direction, base**layer) for layer in range(config.num_layers)]


def build_positions(
    config: sections.Positions | sections.AbsolutePositions,
    dim: int,
    num_heads: int = 1,
    head_dim: int = 1,
    *,
    causal: bool = True,
) -> PositionEncoding | None:
    """A position encoding for vectors of width `dim`, or for heads of width `head_dim`."""
    positions: nn_positions.AbsolutePositions
    match config:
        case sections.NoPositions():
            return None
        case sections.RotaryPositions():
            scaling = None if config.stretched is None else nn_positions.FrequencyScaling(**dict(config.stretched))
            return nn_positions.Rotary(head_dim, config.base, scaling)
        case sections.Alibi():
            return nn_positions.Alibi(num_heads)
        case sections.Relative():
            return nn_positions.RelativeBias(num_heads, config.buckets, config.distance, causal=causal)
        case sections.Index():
            positions = nn_positions.IndexPositions()
        case sections.Normalised():
            positions = nn_positions.NormalisedPositions()
        case sections.OneHot():
            positions = nn_positions.OneHotPositions(config.table)
        case sections.Sinusoidal():
            positions = nn_positions.SinusoidalPositions(dim, config.base, config.order, config.first_position)
        case sections.Learned():
            positions = nn_positions.LearnedPositions(config.table, dim, config.first_position)
        case _ as unreachable:
            assert_never(unreachable)
    return nn_positions.InputPositions(positions, dim, config.combine)


def build_score(kind: configs.ScoreName, query_dim: int, key_dim: int, num_heads: int | None = None) -> Score:
    """A score function by its name in the literature; with `num_heads`, each head has weights of its own."""
    if kind == "bilinear":
        return Bilinear(query_dim, key_dim, num_heads)
    if kind == "additive":
        return Additive(query_dim, key_dim, query_dim, num_heads)
    return Dot() if kind == "dot" else ScaledDot()
