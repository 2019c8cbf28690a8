"""Encoders and decoders as a user writes them: three families, chosen by one word.

`family`, `num_layers`, `model_dim` and `dropout` mean the same in all of them, so changing the one word is enough.
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Tag, ValidationInfo, field_validator, model_validator

from seqloom.config.base import Names, Positive, Rate, Section, chosen_by
from seqloom.config.positions import AbsolutePositions, Positions, RotaryPositions, Sinusoidal

Direction = Literal["both", "forward", "backward"]
Cell = Literal["lstm", "gru", "rnn"]
Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "tanh", "squared-relu"]
ScoreName = Literal["dot", "scaled-dot", "bilinear", "additive"]
_FARTHEST = 1 << 16  # positions: each step of a decoder keeps and moves as many inputs


class _Stack(Section):
    num_layers: Positive = 3
    """How many layers; unless given, `size` decides."""
    model_dim: Positive = 256
    """The width of every vector between layers; unless given, `size` decides."""
    dropout: Rate = 0.1
    """The share of coordinates dropped after each layer while training; unless given, `size` decides."""

    @property
    def max_positions(self) -> int | None:
        """How many positions there are, if they come from a table."""
        return getattr(getattr(self, "positions", None), "table", None)


class _HeadedStack(_Stack):
    score: ScoreName = "scaled-dot"
    """How attention compares a query with a key; bilinear and additive learn it, for each head."""
    chunked_heads: bool = False
    """Whether each head reads only its own chunk of the embedding, with 1 / num_heads of the weights."""

    @field_validator("num_heads", check_fields=False)
    @classmethod
    def _divides_model_dim(cls, heads: int, info: ValidationInfo) -> int:
        dim = info.data.get("model_dim")
        if dim is not None and info.data.get("head_dim") is None and dim % heads:
            raise ValueError(
                f"model_dim = {dim} is not divisible by num_heads = {heads}; give a num_heads that divides it"
            )
        return heads


class _Encoder(_Stack):
    direction: Direction = "both"
    """What a position sees: everything, what came before it, or what comes after it."""


class _TransformerStack(_HeadedStack):
    head_dim: Positive | None = Field(None, examples=[64])
    """The width of a head; absent: model_dim / num_heads."""
    num_heads: Positive = 4
    """Attention heads; they divide model_dim among them unless head_dim is given."""
    num_kv_heads: Positive | None = Field(None, examples=[1])
    """Key-value heads, shared by groups of query heads; absent: as many as num_heads, 1: multi-query."""
    hidden_dim: Positive | None = Field(None, examples=[1024])
    """The inner width of the feed-forward network; absent: 4 × model_dim."""
    feedforward: bool = True
    """Whether a feed-forward network follows attention; without it, a layer only averages."""
    residual: bool = True
    """Whether the input of attention and of the feed-forward network is added to their output."""
    activation: Literal[Activation, "relu-gated", "gelu-gated", "gelu-tanh-gated", "silu-gated"] = "relu"
    """The activation of the feed-forward network."""
    bias: bool = True
    """Whether linear layers add a bias."""
    norm: Literal["layer", "rms", "none"] = "layer"
    """LayerNorm, RMSNorm or no norm."""
    norm_epsilon: Annotated[float, Field(gt=0.0)] | None = Field(None, examples=[1e-6])
    """What keeps a norm from dividing by 0; absent: 1e-5 for layer, 1e-6 for rms."""
    input_norm: bool = False
    """Normalise the embeddings with their positions before the first layer, as BERT does."""
    norm_position: Literal["pre", "post"] = "pre"
    """Normalise what goes into a sublayer, or what comes out of the sum."""
    positions: Positions = RotaryPositions()
    window: Positive | None = Field(None, examples=[128])
    """Restricted attention: how many positions each one sees; absent: all of them."""
    normalise_qk: bool = False
    """Normalise queries and keys before their product."""
    attention_dropout: Rate = 0.0
    """The share of attention weights dropped while training."""

    @field_validator("num_kv_heads")
    @classmethod
    def _divides_num_heads(cls, kv_heads: int | None, info: ValidationInfo) -> int | None:
        heads = info.data.get("num_heads")
        if kv_heads is not None and heads is not None and heads % kv_heads:
            raise ValueError(f"num_heads = {heads} is not divisible by num_kv_heads = {kv_heads}")
        return kv_heads

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        self.positions.check(self.model_dim, self.head_dim or self.model_dim // self.num_heads)
        return self

    @model_validator(mode="after")
    def _chunks_fit(self) -> Self:
        if self.chunked_heads and self.num_kv_heads not in (None, self.num_heads):
            raise ValueError(
                f"chunked_heads = true gives each head keys of its own, but num_kv_heads = {self.num_kv_heads}; "
                "leave one of them out"
            )
        if self.chunked_heads and self.model_dim % self.num_heads:
            raise ValueError(
                f"chunked_heads = true splits model_dim = {self.model_dim} into num_heads = {self.num_heads} equal "
                "chunks; give a num_heads that divides it"
            )
        return self

    @model_validator(mode="after")
    def _options_of_parts(self) -> Self:
        if not self.feedforward and (self.hidden_dim is not None or self.activation != "relu"):
            raise ValueError("hidden_dim and activation are of the feed-forward network, but feedforward = false")
        normless = self.norm_epsilon is None and not self.input_norm and self.norm_position == "pre"
        if self.norm == "none" and not normless:
            raise ValueError('norm_epsilon, input_norm and norm_position are of a norm, but norm = "none"')
        return self


class TransformerEncoderConfig(_Encoder, _TransformerStack):
    """Self-attention: every position attends to every other."""

    family: Literal["transformer"] = "transformer"
    """transformer, recurrent or convolutional: change this one word."""


class RecurrentEncoderConfig(_Encoder):
    """Recurrence: each position is made of its input and the position before it."""

    family: Literal["recurrent"] = "recurrent"
    """transformer, recurrent or convolutional: change this one word."""
    cell: Cell = "lstm"
    """The recurrent cell."""
    residual: bool = False
    """Add the input of each layer after the first to its output."""
    memory_dim: Positive | None = Field(None, examples=[4096])
    """The width of an LSTM's memory, whose output is then a projection; absent: as wide as the output."""
    clip: Annotated[float, Field(gt=0.0)] | None = Field(None, examples=[3.0])
    """The largest number in an LSTM's memory and output; absent: no bound."""

    @model_validator(mode="after")
    def _halves(self) -> Self:
        if self.direction == "both" and self.model_dim % 2:
            raise ValueError(f"model_dim = {self.model_dim} is odd, but two directions share it; make it even")
        if self.cell != "lstm" and (self.memory_dim is not None or self.clip is not None):
            raise ValueError(f'memory_dim and clip are of an LSTM, but cell = "{self.cell}"')
        return self


class _ConvolutionalStack(_Stack):
    kernel: Positive = 3
    """How many inputs a position is made of."""
    dilation_base: Positive = 1
    """The inputs of layer n = 0, 1, … are dilation_base^n positions apart; 1: neighbours."""
    gate: bool = True
    """Whether each output is multiplied by a gate that depends on the inputs; without it, max(0, ·) follows."""
    residual: bool = True
    """Whether the input of each layer is added to its output."""
    positions: AbsolutePositions = Sinusoidal()

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        self.positions.check(self.model_dim, None)
        return self

    @model_validator(mode="after")
    def _reaches(self) -> Self:
        if self.dilation_base == 1:
            return self
        # Of the last layer alone; beyond the bound nobody wants to know by how much.
        reach = (self.kernel - 1) * self.dilation_base ** min(self.num_layers - 1, 64)
        if reach > _FARTHEST:
            raise ValueError(
                f"dilation_base = {self.dilation_base} makes the last of {self.num_layers} layers reach over more than "
                f"{_FARTHEST:,} positions; use a smaller base or fewer layers"
            )
        return self


class ConvolutionalEncoderConfig(_Encoder, _ConvolutionalStack):
    """Convolutions: each position is made of its neighbours."""

    family: Literal["convolutional"] = "convolutional"
    """transformer, recurrent or convolutional: change this one word."""


class _Decoder(_Stack):
    source_keys: ClassVar[Names] = ()
    """The keys that change nothing where there is no source."""

    @field_validator("positions", check_fields=False)
    @classmethod
    def _known_step_by_step(cls, positions: Positions) -> Positions:
        if positions.needs_length:
            raise ValueError(
                f'"{positions.kind}" needs the length of the whole sequence, which a decoder does not know yet'
            )
        return positions


class TransformerDecoderConfig(_TransformerStack, _Decoder):
    """Causal self-attention, and cross-attention where there is a source."""

    family: Literal["transformer"] = "transformer"
    """transformer, recurrent or convolutional: change this one word."""


class RecurrentDecoderConfig(_Stack):
    """Recurrence, and a context where there is a source."""

    source_keys: ClassVar[Names] = ("context", "bridge", "score")
    """The keys that change nothing where there is no source."""

    family: Literal["recurrent"] = "recurrent"
    """transformer, recurrent or convolutional: change this one word."""
    cell: Cell = "lstm"
    """The recurrent cell."""
    residual: bool = False
    """Add the input of each layer after the first to its output."""
    context: Literal["attention", "every-step", "initial-state"] = "attention"
    """How it knows the source: by attention, or by one fixed vector at every step or only at the start."""
    bridge: Literal["learned", "copy"] = "learned"
    """Where its first state comes from: a learned layer over the encoder's summary, or a copy of the last state of each
    layer of a recurrent encoder of the same shape; the states of two directions are concatenated."""
    score: ScoreName = "bilinear"
    """How attention compares the decoder's state with the source's states."""


class ConvolutionalDecoderConfig(_ConvolutionalStack, _HeadedStack, _Decoder):
    """Causal convolutions, and cross-attention in every layer where there is a source."""

    source_keys: ClassVar[Names] = ("num_heads", "score", "chunked_heads")

    family: Literal["convolutional"] = "convolutional"
    """transformer, recurrent or convolutional: change this one word."""
    num_heads: Positive = 1
    """Heads of the attention to the source; they divide model_dim among them."""


EncoderConfig = Annotated[
    Annotated[TransformerEncoderConfig, Tag("transformer")]
    | Annotated[RecurrentEncoderConfig, Tag("recurrent")]
    | Annotated[ConvolutionalEncoderConfig, Tag("convolutional")],
    chosen_by("family", "transformer"),
]
DecoderConfig = Annotated[
    Annotated[TransformerDecoderConfig, Tag("transformer")]
    | Annotated[RecurrentDecoderConfig, Tag("recurrent")]
    | Annotated[ConvolutionalDecoderConfig, Tag("convolutional")],
    chosen_by("family", "transformer"),
]
