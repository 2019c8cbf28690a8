"""How a model knows where a token stands. `positions = "rotary"` is short for `{kind = "rotary"}`."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Tag, model_validator

from seqloom.config.base import NonNegative, Positive, Section, chosen_by, from_word


class PositionSection(Section):
    """A position encoding."""

    needs_length: ClassVar[bool] = False
    """Whether it must know the length of the whole sequence, which a decoder does not."""

    def check(self, model_dim: int, head_dim: int | None) -> None:
        """Refuse widths it does not fit; `head_dim` is that of an attention head, where there are heads."""


class NoPositions(PositionSection):
    """No positions: the model sees a set."""

    kind: Literal["none"] = "none"


class InputSection(PositionSection):
    """Absolute positions, joined to the input embedding."""

    combine: Literal["sum", "concat"] = "sum"
    """Add the position to the input embedding, or concatenate the two and project back."""


class Index(InputSection):
    """The raw index."""

    kind: Literal["index"] = "index"


class Normalised(InputSection):
    """The index as a share of the length."""

    kind: Literal["normalised"] = "normalised"
    needs_length = True


class OneHot(InputSection):
    """A coordinate for each position."""

    kind: Literal["one-hot"] = "one-hot"
    table: Positive = 256
    """How many positions there are; longer sequences are refused."""

    def check(self, model_dim: int, head_dim: int | None) -> None:
        """A sum needs a coordinate for each position."""
        if self.combine == "sum" and self.table > model_dim:
            raise ValueError(
                f"positions.table = {self.table} coordinates cannot be added to model_dim = {model_dim}; "
                'use combine = "concat" or a smaller table'
            )


class Sinusoidal(InputSection):
    """Sines and cosines of many wave lengths."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: float = 10_000.0
    """The longest wave, in units of 2π positions."""
    order: Literal["pairs", "halves"] = "pairs"
    """Each sine beside its cosine, or all sines before all cosines."""
    first_position: NonNegative = 0
    """The number of the first position: some programs count from 1 or 2."""

    def check(self, model_dim: int, head_dim: int | None) -> None:
        """A sine needs its cosine."""
        if model_dim % 2:
            raise ValueError(f"sinusoidal positions come in pairs, but model_dim = {model_dim} is odd; make it even")


class Learned(InputSection):
    """A learned vector for each position."""

    kind: Literal["learned"] = "learned"
    table: Positive = 512
    """How many positions there are; longer sequences are refused."""
    first_position: NonNegative = 0
    """The row of the first position; the table has so many more rows, which are not used, as RoBERTa's."""


class RotaryScaling(Section):
    """Lower frequencies, for texts longer than those of the first training."""

    factor: Annotated[float, Field(gt=0.0)]
    """By how much."""
    length: Positive | None = Field(None, examples=[8192])
    """How long those texts were: much shorter waves stay as they are; absent: all frequencies are lower."""
    low: float = 1.0
    """Waves that fit fewer times than this into `length` are scaled in full."""
    high: float = 4.0
    """Waves that fit more often than this stay as they are."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not 0.0 < self.low < self.high:
            raise ValueError(f"low = {self.low} must be above 0 and below high = {self.high}")
        return self


class RotaryPositions(PositionSection):
    """Queries and keys rotated by their position."""

    kind: Literal["rotary"] = "rotary"
    base: float = 10_000.0
    """The longest wave, in units of 2π positions."""
    stretched: RotaryScaling | None = Field(None, examples=[{"factor": 2.0}])
    """Lower frequencies for longer texts; absent: as they are."""

    def check(self, model_dim: int, head_dim: int | None) -> None:
        """A coordinate needs its partner."""
        if head_dim is not None and head_dim % 2:
            raise ValueError(
                f"rotary positions rotate pairs of coordinates, but a head has {head_dim}; "
                'make model_dim / num_heads even, or say positions = "sinusoidal"'
            )


class Alibi(PositionSection):
    """Scores lowered in proportion to distance."""

    kind: Literal["alibi"] = "alibi"


class Relative(PositionSection):
    """A learned number for each head and distance, near ones exactly, far ones in buckets; shared by all layers."""

    kind: Literal["relative"] = "relative"
    buckets: Annotated[int, Field(ge=4)] = 32
    """How many distances are told apart; an encoder has half of them for each side."""
    distance: Positive = 128
    """From here on all distances are one."""

    @model_validator(mode="after")
    def _reaches_beyond_the_exact(self) -> Self:
        if self.distance <= self.buckets // 2:
            raise ValueError(f"distance = {self.distance} must be more than half of buckets = {self.buckets}")
        return self


_OnInput = (
    Annotated[NoPositions, Tag("none")]
    | Annotated[Index, Tag("index")]
    | Annotated[Normalised, Tag("normalised")]
    | Annotated[OneHot, Tag("one-hot")]
    | Annotated[Sinusoidal, Tag("sinusoidal")]
    | Annotated[Learned, Tag("learned")]
)
_InAttention = (
    Annotated[RotaryPositions, Tag("rotary")] | Annotated[Alibi, Tag("alibi")] | Annotated[Relative, Tag("relative")]
)
AbsolutePositions = Annotated[
    _OnInput,
    chosen_by("kind", "sinusoidal"),
    from_word,
    Field(description="none, index, normalised, one-hot, sinusoidal or learned."),
]
Positions = Annotated[
    _OnInput | _InAttention,
    chosen_by("kind", "rotary"),
    from_word,
    Field(
        description="none, index, normalised, one-hot, sinusoidal, learned, rotary, alibi or relative. Hugging Face's "
        "encoders and\ntranslation models have no rotary ones: for export there, say sinusoidal."
    ),
]
