"""The options of a search: for all lines, for a user, and for each line.

Hypotheses are ranked by their log-probability, their length, and how much of the source they attended to:

    s(Y, X) = log P(Y | X) / |Y|^α + β Σ_i log min(Σ_j a_ij, 1)

|Y| counts the predicted tokens and the end; a_ij is the attention of target token j to source token i. α = 1 takes the
mean over tokens, as fairseq, Hugging Face and CTranslate2 do. The coverage term is that of Wu et al. 2016, §7; they
divide by ((5 + |Y|) / 6)^α, which at α = 1 still favours short answers.

The text beside an option's type is its help on the command line. This file imports nothing slow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from seqloom.errors import ConfigError

Tokens = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search; the same for all lines.

    Sampling truncates by top-k (Fan et al. 2018), then top-p (Holtzman et al. 2020), then min-p (Nguyen et al. 2024).
    """

    beam: Annotated[int, "Hypotheses followed at once; 1, the default, is greedy search."] = 1
    nbest: Annotated[int, "Answers wanted, best first; with sample, how many are drawn."] = 1
    length_penalty: Annotated[float, "0 favours short answers; 1, the default, ranks by the mean over tokens."] = 1.0
    coverage_penalty: Annotated[float, "What it costs to leave parts of the source unattended."] = 0.0
    sample: Annotated[bool, "Draw tokens instead of looking for the best."] = False
    temperature: Annotated[float | None, "Scores are divided by it; below 1, likely tokens become likelier."] = None
    top_k: Annotated[int | None, "Draw among the k most probable tokens."] = None
    top_p: Annotated[float | None, "Draw among the fewest tokens with this probability together."] = None
    min_p: Annotated[float | None, "Draw among tokens at least this many times as probable as the best."] = None
    min_length: Annotated[int, "The fewest tokens of an answer."] = 0
    repetition_penalty: Annotated[float, "Above 1, tokens that were read before become less likely."] = 1.0
    no_repeat_ngram: Annotated[int, "No sequence of this many tokens occurs twice; 0, the default, allows all."] = 0

    def __post_init__(self) -> None:
        _require(self.beam >= 1, f"beam: must be at least 1, not {self.beam}")
        _require(self.nbest >= 1, f"nbest: must be at least 1, not {self.nbest}")
        _require(self.min_length >= 0, f"min_length: must not be negative, but is {self.min_length}")
        alpha = self.length_penalty
        _require(-100 <= alpha <= 100, f"length_penalty: must be from -100 to 100, not {alpha}; 1 is usual, 0 has none")
        _require(self.coverage_penalty >= 0, f"coverage_penalty: must not be negative, but is {self.coverage_penalty}")
        penalty, size = self.repetition_penalty, self.no_repeat_ngram
        _require(penalty > 0, f"repetition_penalty: must be above 0, not {penalty}; 1 changes nothing")
        _require(size >= 0, f"no_repeat_ngram: must not be negative, but is {size}; 0 allows all")
        t, k, p, least = self.temperature, self.top_k, self.top_p, self.min_p
        _require(t is None or t > 0, f"temperature: must be above 0, not {t}; for the best token, do not sample")
        _require(k is None or k >= 1, f"top_k: must be at least 1, not {k}")
        _require(p is None or 0 < p <= 1, f"top_p: must be above 0 and at most 1, not {p}")
        _require(least is None or 0 <= least <= 1, f"min_p: must be from 0 to 1, not {least}")
        if self.sample:
            _require(self.beam == 1, f"beam: {self.beam} beams and sampling exclude each other; leave one of them out")
        else:
            given = [name for name in ("temperature", "top_k", "top_p", "min_p") if getattr(self, name) is not None]
            _require(not given, f"{', '.join(given)}: only for sampling; set `sample`, too")
            _require(
                self.nbest <= self.beam,
                f"nbest: {self.nbest} is more than beam = {self.beam}; search with a beam of {self.nbest}, or sample",
            )

    @property
    def limits_repetition(self) -> bool:
        """Whether what was read before changes what may follow."""
        return self.repetition_penalty != 1.0 or self.no_repeat_ngram > 0

    @property
    def width(self) -> int:
        """The number of rows for each line."""
        return max(self.beam, self.nbest)


@dataclass(frozen=True, kw_only=True)
class Search(SearchOptions):
    """The options of a user: also those that become part of the `Request` of each text."""

    seed: Annotated[int, "With the number of a text, it decides what is drawn."] = 0
    max_length: Annotated[int | None, "The most tokens of an answer; by default, it depends on the text."] = None
    prefix: Annotated[str, "What every answer begins with."] = ""
    constraints: Annotated[Sequence[str], "What every answer contains."] = ()
    avoid: Annotated[Sequence[str], "What no answer contains."] = ()
    allow_unseen: Annotated[bool, "Allow tokens that the training data did not contain."] = False


@dataclass(frozen=True)
class Request:
    """The options of one line."""

    start: int
    """The token before the first: the start of a sentence, or the first token of a prompt."""
    max_length: int
    """The most tokens of the answer, including its prefix; longer answers are cut."""
    prefix: Tokens = ()
    """What the answer must begin with: given tokens of a translation, or the rest of a prompt."""
    seed: int = 0
    """The seed for sampling: a line with the same seed gets the same text, whatever the other lines are."""
    required: tuple[Tokens, ...] = ()
    """Sequences the answer must contain after its prefix."""
    forbidden: tuple[Tokens, ...] = ()
    """Sequences the answer must not contain, except in its prefix."""

    def __post_init__(self) -> None:
        _require(self.max_length >= 0, f"max_length: must not be negative, but is {self.max_length}")
        _require(all(self.required), "required holds an empty sequence; leave it out")
        _require(all(self.forbidden), "forbidden holds an empty sequence, which every text contains; leave it out")
        for wanted in self.required:
            for unwanted in self.forbidden:
                _require(
                    not _contains(wanted, unwanted),
                    f"required {wanted} contains forbidden {unwanted}: no answer can meet both",
                )
        given = len(self.prefix)
        _require(given <= self.max_length, f"prefix has {given} tokens, more than max_length = {self.max_length}")
        needed = given + sum(map(len, self.required))
        _require(
            not self.required or needed <= self.max_length,
            f"prefix and required sequences have {needed} tokens, more than max_length = {self.max_length}",
        )


def penalise_length(total: float, length: int, alpha: float) -> float:
    """Log P / |Y|^α."""
    divisor: float = max(1, length) ** alpha
    return total / divisor


def _contains(whole: Tokens, part: Tokens) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))


def _require(fine: bool, fault: str) -> None:
    if not fine:
        raise ConfigError(fault)
