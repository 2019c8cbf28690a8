"""Encoders and decoders from their configuration: the one place that turns words into classes."""

from typing import Literal, assert_never

from seqloom.config.positions import (
    AbsolutePositions,
    Alibi,
    Index,
    Learned,
    Normalised,
    Nowhere,
    OneHot,
    Positions,
    Relative,
    RotaryPositions,
    Sinusoidal,
)
from seqloom.config.stacks import (
    ConvolutionalDecoderConfig,
    ConvolutionalEncoderConfig,
    DecoderConfig,
    EncoderConfig,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
)
from seqloom.decoders.base import Decoder
from seqloom.decoders.convolutional import ConvolutionalDecoder
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.base import Encoder
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.nn import positions as nn_positions
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.scores import Additive, Bilinear, Dot, ScaledDot, Score
from seqloom.nn.transformer import TransformerBlock

Direction = Literal["both", "forward", "backward"]


def build_encoder(config: EncoderConfig) -> Encoder:
    """An encoder of the family that was asked for."""
    match config:
        case TransformerEncoderConfig():
            return TransformerEncoder(
                build_blocks(config, config.direction, None),
                build_positions(config.positions, config.model_dim),
                model_dim=config.model_dim,
                norm=config.norm,
                norm_position=config.norm_position,
                norm_epsilon=config.norm_epsilon,
                input_norm=config.input_norm,
            )
        case RecurrentEncoderConfig():
            return RecurrentEncoder(
                config.cell,
                model_dim=config.model_dim,
                num_layers=config.num_layers,
                direction=config.direction,
                residual=config.residual,
                dropout=config.dropout,
                memory_dim=config.memory_dim,
                clip=config.clip,
            )
        case ConvolutionalEncoderConfig():
            return ConvolutionalEncoder(
                build_positions(config.positions, config.model_dim),
                model_dim=config.model_dim,
                num_layers=config.num_layers,
                kernel=config.kernel,
                direction=config.direction,
                dropout=config.dropout,
            )
        case _ as unreachable:
            assert_never(unreachable)


def build_decoder(config: DecoderConfig, memory_dim: int | None) -> Decoder:
    """A decoder of the family that was asked for; `memory_dim` is the width of its source, if it has one."""
    match config:
        case TransformerDecoderConfig():
            return TransformerDecoder(
                build_blocks(config, "forward", memory_dim),
                build_positions(config.positions, config.model_dim),
                model_dim=config.model_dim,
                norm=config.norm,
                norm_position=config.norm_position,
                norm_epsilon=config.norm_epsilon,
                input_norm=config.input_norm,
            )
        case RecurrentDecoderConfig():
            return RecurrentDecoder(
                config.cell,
                model_dim=config.model_dim,
                num_layers=config.num_layers,
                memory_dim=memory_dim,
                context=config.context,
                score=build_score(config.score, config.model_dim, memory_dim or config.model_dim),
                residual=config.residual,
                dropout=config.dropout,
            )
        case ConvolutionalDecoderConfig():
            return ConvolutionalDecoder(
                build_positions(config.positions, config.model_dim),
                model_dim=config.model_dim,
                num_layers=config.num_layers,
                kernel=config.kernel,
                num_heads=config.num_heads,
                memory_dim=memory_dim,
                dropout=config.dropout,
            )
        case _ as unreachable:
            assert_never(unreachable)


def build_blocks(
    config: TransformerEncoderConfig | TransformerDecoderConfig, direction: Direction, memory_dim: int | None
) -> list[TransformerBlock]:
    """The blocks of a stack; what they know of relative positions is shared."""
    relative = None
    if config.positions.kind == "relative":
        relative = nn_positions.RelativeBias(
            config.num_heads, config.positions.buckets, config.positions.distance, causal=direction != "both"
        )
    return [build_block(config, direction, memory_dim, relative) for _ in range(config.num_layers)]


def build_block(
    config: TransformerEncoderConfig | TransformerDecoderConfig,
    direction: Direction,
    memory_dim: int | None,
    relative: nn_positions.RelativeBias | None = None,
) -> TransformerBlock:
    """One Transformer block, with cross-attention if there is a source."""
    dim, heads = config.model_dim, config.num_heads
    head_dim = dim // heads if config.head_dim is None else config.head_dim
    rotary = build_rotary(config.positions, head_dim) if config.positions.kind == "rotary" else None
    attention = SelfAttention(
        dim,
        heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=head_dim,
        bias=config.bias,
        causal=direction != "both",
        reverse=direction == "backward",
        window=config.window,
        rotary=rotary,
        alibi=config.positions.kind == "alibi",
        relative=relative,
        normalise_qk=config.normalise_qk,
        dropout=config.attention_dropout,
    )
    cross = None
    if memory_dim is not None:
        cross = CrossAttention(
            dim, memory_dim, heads, head_dim=head_dim, bias=config.bias, dropout=config.attention_dropout
        )
    hidden = config.hidden_dim if config.hidden_dim is not None else 4 * dim
    return TransformerBlock(
        attention,
        cross,
        FeedForward(dim, hidden, config.activation, bias=config.bias, dropout=config.dropout),
        model_dim=dim,
        norm=config.norm,
        norm_position=config.norm_position,
        dropout=config.dropout,
        norm_epsilon=config.norm_epsilon,
    )


def build_rotary(config: RotaryPositions, head_dim: int) -> nn_positions.Rotary:
    """Angles, slower ones if they were stretched."""
    slower = config.stretched
    stretch = None if slower is None else nn_positions.Stretch(slower.factor, slower.length, slower.low, slower.high)
    return nn_positions.Rotary(head_dim, config.base, stretch)


def build_positions(config: Positions | AbsolutePositions, dim: int) -> nn_positions.PositionedInput | None:
    """What is joined to the input embedding; None where positions act inside attention, or nowhere."""
    positions: nn_positions.AbsolutePositions
    match config:
        case Nowhere() | RotaryPositions() | Alibi() | Relative():
            return None
        case Index():
            positions = nn_positions.IndexPositions()
        case Normalised():
            positions = nn_positions.NormalisedPositions()
        case OneHot():
            positions = nn_positions.OneHotPositions(config.table)
        case Sinusoidal():
            positions = nn_positions.SinusoidalPositions(dim, config.base, config.order)
        case Learned():
            positions = nn_positions.LearnedPositions(config.table, dim)
        case _ as unreachable:
            assert_never(unreachable)
    return nn_positions.PositionedInput(positions, dim, config.combine)


def build_score(kind: Literal["dot", "scaled-dot", "bilinear", "additive"], query_dim: int, key_dim: int) -> Score:
    """A score function by its name in the literature."""
    match kind:
        case "dot":
            return Dot()
        case "scaled-dot":
            return ScaledDot()
        case "bilinear":
            return Bilinear(query_dim, key_dim)
        case "additive":
            return Additive(query_dim, key_dim, query_dim)
        case _ as unreachable:
            assert_never(unreachable)
