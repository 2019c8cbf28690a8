"""What a user may ask of a search, and what that means in tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypedDict

from seqloom.decode.options import Sampling, SearchOptions, Tokens
from seqloom.errors import ConfigError
from seqloom.text import Tokenizer


class SearchKeywords(TypedDict, total=False):
    """The fields of `Search`, each of which may be left out."""

    beam: int
    nbest: int
    length_penalty: float
    coverage_penalty: float
    sample: bool
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int
    min_length: int
    max_length: int | None
    prefix: str
    constraints: Sequence[str]
    avoid: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to look for an answer: the same for all texts."""

    beam: int = 1
    """How many hypotheses are followed at once; 1 is greedy search."""
    nbest: int = 1
    """How many answers are wanted."""
    length_penalty: float = 1.0
    """0 favours short answers; 1 judges by about the mean of the log-probabilities."""
    coverage_penalty: float = 0.0
    """What it costs to leave parts of the source unattended."""
    sample: bool = False
    """Draw tokens, instead of looking for the best."""
    temperature: float | None = None
    """Below 1, what is likely becomes likelier."""
    top_k: int | None = None
    """Draw among the k most probable tokens."""
    top_p: float | None = None
    """Draw among the fewest tokens that together have this probability."""
    min_p: float | None = None
    """Draw among the tokens at least this many times as probable as the best."""
    seed: int = 0
    """With the number of a text, it decides what is drawn."""
    min_length: int = 0
    """The least tokens of an answer."""
    max_length: int | None = None
    """The most tokens of an answer; otherwise it depends on the text."""
    prefix: str = ""
    """What an answer must begin with."""
    constraints: Sequence[str] = ()
    """What an answer must contain."""
    avoid: Sequence[str] = ()
    """What an answer must not contain."""

    def options(self, *, never: Tokens, kept: int = 0) -> SearchOptions:
        """For the search; `kept` tokens of a prompt do not count as the answer's."""
        given = {name: getattr(self, name) for name in (field.name for field in fields(Sampling))}
        given = {name: value for name, value in given.items() if value is not None}
        if given and not self.sample:
            raise ConfigError(f"{', '.join(given)} says how to draw tokens; say also sample (--sample)")
        return SearchOptions(
            beam=self.beam,
            nbest=self.nbest,
            length_penalty=self.length_penalty,
            coverage_penalty=self.coverage_penalty,
            sampling=Sampling(**given) if self.sample else None,
            min_length=self.min_length + kept if self.min_length else 0,
            never=never,
        )

    @property
    def width(self) -> int:
        """How many rows a text takes."""
        return max(self.beam, self.nbest)

    def require(self, tokenizer: Tokenizer) -> tuple[Tokens, ...]:
        """The constraints as tokens, spelled as inside a sentence."""
        return tuple(_spell_inside(tokenizer, text) for text in self.constraints)

    def forbid(self, tokenizer: Tokenizer) -> tuple[Tokens, ...]:
        """What to avoid as tokens, in every spelling: inside a sentence and at its start."""
        spelled = [(_spell_inside(tokenizer, text), tuple(tokenizer.encode(text).ids)) for text in self.avoid]
        return tuple(dict.fromkeys(tokens for pair in spelled for tokens in pair))


def _spell_inside(tokenizer: Tokenizer, text: str) -> Tokens:
    words = text.split()
    if not words:
        raise ConfigError("a constraint, or what to avoid, is blank; leave it out")
    ids, first = tokenizer.encode_words(["a", *words])
    return tuple(ids[first[1] :])
