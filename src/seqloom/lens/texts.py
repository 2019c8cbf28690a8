"""What a trace is about: the sides of a text with their tokens and words, and what is predicted where."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from seqloom.lens.networks import Direction

Place = tuple[str, int]
"""The name of a side, and the index of a token."""


@dataclass(frozen=True)
class Token:
    """A token as the network reads it."""

    id: int
    text: str
    start: int | None = None
    """Where it begins in its side's text, in characters; None for a special token."""
    end: int | None = None
    special: bool = False
    word: int | None = None
    """The index of its word; words are separated by white space."""


@dataclass(frozen=True)
class Word:
    """A word, and the indices of its tokens."""

    text: str
    start: int
    end: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Side:
    """One of the sequences that a network reads."""

    name: str
    text: str
    tokens: tuple[Token, ...]

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """The words, each with its tokens; special tokens belong to none."""
        own: dict[int, list[int]] = {}
        for index, token in enumerate(self.tokens):
            if token.word is not None:
                own.setdefault(token.word, []).append(index)
        found = []
        for _, tokens in sorted(own.items()):
            start = min(self.tokens[index].start or 0 for index in tokens)
            end = max(self.tokens[index].end or 0 for index in tokens)
            start += len(self.text[start:end]) - len(self.text[start:end].lstrip())
            found.append(Word(self.text[start:end], start, end, tuple(tokens)))
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """The side as a value that JSON can express."""
        tokens, words = [asdict(token) for token in self.tokens], [asdict(word) for word in self.words]
        return {"name": self.name, "text": self.text, "tokens": tokens, "words": words}


@dataclass(frozen=True)
class Choice:
    """Something that the network could predict."""

    id: int
    text: str
    probability: float | None
    """None where a number is predicted."""
    logit: float


@dataclass(frozen=True)
class Prediction:
    """What the network predicts at a place."""

    at: Place | None
    """The token whose state is scored; None for the text as a whole."""
    of: Place | None
    """The token that is predicted; None if it is not in the text."""
    id: int
    label: str
    probability: float | None
    top: tuple[Choice, ...]
    """What is most probable."""
    direction: Direction = ""

    def to_json(self) -> dict[str, Any]:
        """The prediction as a value that JSON can express."""
        shown = {"at": self.at, "of": self.of, "id": self.id, "label": self.label, "probability": self.probability}
        top = [{"id": one.id, "text": one.text, "probability": one.probability} for one in self.top]
        return {**shown, **({"direction": self.direction} if self.direction else {}), "top": top}


@dataclass(frozen=True)
class Question:
    """A prediction to look at: the row of the states that are scored, and the answer where it is known."""

    row: int
    at: Place | None
    of: Place | None = None
    id: int | None = None
    """The token or label in question; None for the most probable."""
    direction: Direction = ""


@dataclass(frozen=True)
class Reading:
    """What a network is to read, and what is known about it."""

    task: str
    sides: tuple[Side, ...]
    ids: Mapping[str, Int[Tensor, "T"]]
    questions: tuple[Question, ...]
    name: Callable[[int], str]
    """The text of a token or label."""
    find: Callable[[str], int]
    """The token or label of a text; an error if there is none."""
    request: Mapping[str, Any]
    """What was asked for, as JSON can express it."""
    quantity: bool = False
    """Whether a number is predicted, not a label."""
    again: Callable[..., Any] | None = None
    """Makes another trace: of another text, or of the same with changes."""
    answer: Any = None
    said: Any = None
    """The answer as JSON can express it."""
    notes: tuple[str, ...] = field(default=())


def choose(logits: Float[Tensor, "V"], reading: Reading, top: int) -> tuple[Choice, ...]:
    """The most probable of what can be predicted."""
    if reading.quantity:
        return (Choice(0, f"{logits[0]:.4g}", None, float(logits[0])),)
    probabilities = logits.float().softmax(-1)
    best = probabilities.topk(min(top, len(probabilities)))
    return tuple(
        Choice(id, reading.name(id), probability, float(logits[id]))
        for id, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )
