"""What the verbs answer: small frozen records, the same in Python and, field by field, in `--json`.

An offset is a half-open range of characters of the text as given. A blank text has an empty result. `pieces` is how
many pieces a text was processed in: more than one where it was too long for the model.
"""

import reprlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """An answer to one text: what the answers of all verbs have."""

    pieces: int = 1

    def __repr__(self) -> str:
        """The first two fields, shortened; the others are there, but long."""
        names = [name for name in vars(self) if name != "pieces"][:2] + ["pieces"] * (self.pieces > 1)
        return f"{type(self).__name__}({', '.join(f'{name}={_shorten(getattr(self, name))}' for name in names)})"

    @property
    def flags(self) -> tuple[str, ...]:
        """What a user should know about how it was made."""
        return ("split",) if self.pieces > 1 else ()


@dataclass(frozen=True, repr=False)
class Translation(Result):
    """A target text, the score search gave it, and which word of the source (from 0) each word of it comes from."""

    text: str
    score: float = 0.0
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    alignment: tuple[tuple[int, int], ...] = ()
    """(source word, target word): words are what stands between spaces."""
    finished: bool = True
    """False where the longest length allowed ended the text."""
    alternatives: tuple["Translation", ...] = ()
    """The next best ones, when more than one was asked for."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Also whether it was cut off."""
        return (*super().flags, *(() if self.finished else ("unfinished",)))


@dataclass(frozen=True, repr=False)
class Generation(Result):
    """A continuation: the text after the prompt."""

    text: str
    score: float = 0.0
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    finished: bool = True
    """Whether the model ended it, rather than the longest length allowed."""
    alternatives: tuple["Generation", ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """If a prompt was in several pieces, the model read only the last."""
        return ("shortened",) if self.pieces > 1 else ()


@dataclass(frozen=True, repr=False)
class Classification(Result):
    """The most probable label."""

    label: str
    probability: float = 0.0
    probabilities: dict[str, float] | None = None
    """Of every label; None for a blank text."""


@dataclass(frozen=True, repr=False)
class Quantity(Result):
    """A number: the answer of a regression; None for a blank text."""

    value: float | None


@dataclass(frozen=True, repr=False)
class Tagging(Result):
    """A tag for each word; a word is what stands between spaces."""

    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    offsets: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A token that may stand where the mask stands."""

    token: str
    text: str
    probability: float


@dataclass(frozen=True)
class Mask:
    """A place to fill, best candidates first."""

    offset: Span
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, repr=False)
class Filling(Result):
    """The text with the best candidate in each place, and the others."""

    text: str
    masks: tuple[Mask, ...] = ()


@dataclass(frozen=True, repr=False)
class Score(Result):
    """How probable a text is, in natural logarithms; None stands for a token that the model cannot predict."""

    log_probability: float = 0.0
    perplexity: float | None = None
    bits_per_byte: float | None = None
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float | None, ...] = ()
    offsets: tuple[Span, ...] = ()
    num_bytes: int = 0
    """How many bytes the tokens that have a score stand for."""


@dataclass(frozen=True, eq=False, repr=False)
class Vector(Result):
    """A text as a point; zeros for a blank text."""

    vector: NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class TokenVectors(Result):
    """Each token of a text as a point."""

    tokens: tuple[str, ...]
    offsets: tuple[Span, ...]
    vectors: NDArray[np.float32]


def _shorten(value: Any) -> str:
    match value:
        case float():
            return f"{value:.4g}"
        case np.ndarray():
            return f"<{' × '.join(map(str, value.shape))} {value.dtype}>"
        case _:
            return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring, _SHORT.maxtuple = 60, 4


def as_plain(value: Any) -> Any:
    """A result as values that JSON has."""
    match value:
        case np.ndarray():
            return value.tolist()
        case tuple():
            return [as_plain(item) for item in value]
        case Result() | Candidate() | Mask():
            return {name: as_plain(item) for name, item in vars(value).items()}
        case _:
            return value
