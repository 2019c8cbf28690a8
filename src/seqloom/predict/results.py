"""The results of the verbs: small frozen records, with the same fields in Python and in `--json`.

An offset is a half-open range of characters of the given text. A blank text has an empty result. `pieces` is how many
pieces a text was processed in: more than one if it was too long for the model, or was split into sentences.
"""

import reprlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """The answer to one text: the base of all results."""

    pieces: int = 1

    def __repr__(self) -> str:
        """The first two fields, shortened."""
        names = [name for name in vars(self) if name != "pieces"][:2] + ["pieces"] * (self.pieces > 1)
        return f"{type(self).__name__}({', '.join(f'{name}={_shorten(getattr(self, name))}' for name in names)})"

    @property
    def flags(self) -> tuple[str, ...]:
        """What a user should know about how the answer was made."""
        return ("split",) if self.pieces > 1 else ()


@dataclass(frozen=True, repr=False)
class Translation(Result):
    """A target text, its score in the search, and the source word that each of its words comes from."""

    text: str
    score: float = 0.0
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    alignment: tuple[tuple[int, int], ...] = ()
    """Pairs of (source word, target word), counted from 0; words are separated by white space."""
    finished: bool = True
    """False if the text was cut off at the maximum length."""
    alternatives: tuple["Translation", ...] = ()
    """The next best translations, if more than one was asked for."""
    sentences: int = 1
    """How many sentences the text was split into. There are more pieces if a sentence was too long."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Whether the text was split into sentences, one of them was too long, or the answer was cut off."""
        said = {
            "of several sentences": self.sentences > 1,
            "split": self.pieces > self.sentences,
            "unfinished": not self.finished,
        }
        return tuple(flag for flag, holds in said.items() if holds)


@dataclass(frozen=True, repr=False)
class Generation(Result):
    """A continuation: the text after the prompt."""

    text: str
    score: float = 0.0
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    finished: bool = True
    """False if the text was cut off at the maximum length."""
    alternatives: tuple["Generation", ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """Of a prompt in several pieces, the model read only the last."""
        return ("shortened",) if self.pieces > 1 else ()


@dataclass(frozen=True, repr=False)
class Classification(Result):
    """The most probable label."""

    label: str
    probability: float = 0.0
    probabilities: dict[str, float] | None = None
    """The probability of each label; None for a blank text."""


@dataclass(frozen=True, repr=False)
class Quantity(Result):
    """The number that a regression predicts; None for a blank text."""

    value: float | None


@dataclass(frozen=True)
class TaggedSpan:
    """A name or another span that tags mark."""

    label: str
    """Its kind: PER where its first word is tagged B-PER."""
    text: str
    start: int
    """Where it begins in the given text, in characters."""
    end: int


@dataclass(frozen=True, repr=False)
class Tagging(Result):
    """A tag for each word; words are separated by white space.

    Where a list of words was given, offsets are those of the words joined by single spaces.
    """

    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    offsets: tuple[Span, ...] = ()
    spans: tuple[TaggedSpan, ...] = ()
    """The spans that the tags mark, such as names; none where tags are of another kind, such as parts of speech."""


@dataclass(frozen=True)
class Candidate:
    """A token that may take the place of a mask."""

    token: str
    text: str
    probability: float


@dataclass(frozen=True)
class Mask:
    """A mask of the text and its candidates, best first."""

    offset: Span
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, repr=False)
class Filling(Result):
    """The text with the best candidate in place of each mask, and all candidates."""

    text: str
    masks: tuple[Mask, ...] = ()


@dataclass(frozen=True, repr=False)
class Score(Result):
    """How probable a text is, in natural logarithms; the score of a token the model cannot predict is None."""

    log_probability: float = 0.0
    perplexity: float | None = None
    bits_per_byte: float | None = None
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float | None, ...] = ()
    offsets: tuple[Span, ...] = ()
    num_bytes: int = 0
    """How many bytes of text the scored tokens cover."""


@dataclass(frozen=True, eq=False, repr=False)
class Vector(Result):
    """The vector of a text, or a row for each layer; zeros for a blank text."""

    vector: NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class TokenVectors(Result):
    """The vector of each token of a text."""

    tokens: tuple[str, ...]
    offsets: tuple[Span, ...]
    vectors: NDArray[np.float32]
    """A row for each token; with all layers, an array of such rows for each layer."""


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
    """A result as a value that JSON can express."""
    match value:
        case np.ndarray():
            return value.tolist()
        case tuple():
            return [as_plain(item) for item in value]
        case Result() | Candidate() | Mask() | TaggedSpan():
            return {name: as_plain(item) for name, item in vars(value).items()}
        case _:
            return value
