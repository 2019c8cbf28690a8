"""How a model knows where a token stands. `positions = "rotary"` is short for `{kind = "rotary"}`."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, Tag, model_validator

from seqloom.config.base import Positive, Section, chosen_by


class Nowhere(Section):
    """No positions: the model sees a set."""

    kind: Literal["none"] = "none"


class _Absolute(Section):
    combine: Literal["sum", "concat"] = "sum"
    """Add the position to the input embedding, or concatenate the two and project back."""


class Index(_Absolute):
    """The raw index."""

    kind: Literal["index"] = "index"


class Normalised(_Absolute):
    """The index as a share of the length."""

    kind: Literal["normalised"] = "normalised"


class OneHot(_Absolute):
    """A coordinate for each position."""

    kind: Literal["one-hot"] = "one-hot"
    table: Positive = 256
    """How many positions there are; longer sequences are refused."""


class Sinusoidal(_Absolute):
    """Sines and cosines of many wave lengths."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: float = 10_000.0
    """The longest wave, in units of 2π positions."""
    order: Literal["pairs", "halves"] = "pairs"
    """Each sine beside its cosine, or all sines before all cosines."""


class Learned(_Absolute):
    """A learned vector for each position."""

    kind: Literal["learned"] = "learned"
    table: Positive = 512
    """How many positions there are; longer sequences are refused."""


class Stretched(Section):
    """Slower angles, for texts longer than those of the first training."""

    factor: Annotated[float, Field(gt=0.0)]
    """By how much."""
    length: Positive | None = Field(None, examples=[8192])
    """How long those texts were: much shorter waves stay as they are; absent: all slow down."""
    low: float = 1.0
    """Waves that fit fewer times than this into `length` slow down in full."""
    high: float = 4.0
    """Waves that fit more often than this stay as they are."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not 0.0 < self.low < self.high:
            raise ValueError(f"low = {self.low} must be above 0 and below high = {self.high}")
        return self


class RotaryPositions(Section):
    """Queries and keys turned by their position."""

    kind: Literal["rotary"] = "rotary"
    base: float = 10_000.0
    """The longest wave, in units of 2π positions."""
    stretched: Stretched | None = None
    """Slower angles for longer texts; absent: as they are."""


class Alibi(Section):
    """Scores lowered in proportion to distance."""

    kind: Literal["alibi"] = "alibi"


class Relative(Section):
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


def _from_word(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


AbsolutePositions = Annotated[
    Annotated[Nowhere, Tag("none")]
    | Annotated[Index, Tag("index")]
    | Annotated[Normalised, Tag("normalised")]
    | Annotated[OneHot, Tag("one-hot")]
    | Annotated[Sinusoidal, Tag("sinusoidal")]
    | Annotated[Learned, Tag("learned")],
    chosen_by("kind", "sinusoidal"),
    BeforeValidator(_from_word),
]
Positions = Annotated[
    Annotated[Nowhere, Tag("none")]
    | Annotated[Index, Tag("index")]
    | Annotated[Normalised, Tag("normalised")]
    | Annotated[OneHot, Tag("one-hot")]
    | Annotated[Sinusoidal, Tag("sinusoidal")]
    | Annotated[Learned, Tag("learned")]
    | Annotated[RotaryPositions, Tag("rotary")]
    | Annotated[Alibi, Tag("alibi")]
    | Annotated[Relative, Tag("relative")],
    chosen_by("kind", "sinusoidal"),
    BeforeValidator(_from_word),
]
