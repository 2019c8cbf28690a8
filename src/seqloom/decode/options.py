"""What may be asked of a search: for all lines alike, and for each line by itself."""

from dataclasses import dataclass

from seqloom.errors import ConfigError

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn. What is left after `top_k` is renormalised before `top_p`, and so before `min_p`."""

    temperature: float = 1.0
    """Scores are divided by it: below 1 the likely become likelier."""
    top_k: int | None = None
    """Draw among the k most probable tokens (Fan et al. 2018)."""
    top_p: float | None = None
    """Draw among the fewest tokens that together have this probability (Holtzman et al. 2020)."""
    min_p: float | None = None
    """Draw among the tokens at least this many times as probable as the best (Nguyen et al. 2024)."""

    def __post_init__(self) -> None:
        _require(
            self.temperature > 0, f"temperature = {self.temperature} must be above 0; for the best token, do not sample"
        )
        _require(self.top_k is None or self.top_k >= 1, f"top_k = {self.top_k} must be at least 1")
        _require(self.top_p is None or 0 < self.top_p <= 1, f"top_p = {self.top_p} must be above 0 and at most 1")
        _require(self.min_p is None or 0 <= self.min_p <= 1, f"min_p = {self.min_p} must be from 0 to 1")


@dataclass(frozen=True)
class SearchOptions:
    """How to search; the same for all lines."""

    beam: int = 1
    """How many hypotheses are followed at once; 1 is greedy search."""
    nbest: int = 1
    """How many hypotheses are wanted; with sampling, how many are drawn."""
    length_penalty: float = 1.0
    """α, the power of the length that a log-probability is divided by: 0 favours short answers, 1 takes the mean."""
    coverage_penalty: float = 0.0
    """β of Wu et al. 2016, §7: how much it costs to leave parts of the source unattended."""
    sampling: Sampling | None = None
    """Draw tokens instead of looking for the best."""
    min_length: int = 0
    """The least tokens of an answer, its prefix among them."""
    never: Tokens = ()
    """Tokens that are no part of any answer, such as padding."""

    def __post_init__(self) -> None:
        _require(self.beam >= 1, f"beam = {self.beam} must be at least 1")
        _require(self.nbest >= 1, f"nbest = {self.nbest} must be at least 1")
        _require(self.min_length >= 0, f"min_length = {self.min_length} must not be negative")
        _require(self.coverage_penalty >= 0, f"coverage_penalty = {self.coverage_penalty} must not be negative")
        if self.sampling is not None:
            _require(self.beam == 1, f"beam = {self.beam} and sampling exclude each other; leave one of them out")
        else:
            _require(
                self.nbest <= self.beam,
                f"nbest = {self.nbest} is more than beam = {self.beam}; search with a beam of {self.nbest}, or sample",
            )


@dataclass(frozen=True)
class Request:
    """What one line asks for."""

    start: int
    """The token before the first: the beginning of a sentence, or the first token of a prompt."""
    max_length: int
    """The most tokens of the answer, its prefix among them; where it is reached, the answer is cut."""
    prefix: Tokens = ()
    """What the answer must begin with: given tokens of a translation, or the rest of a prompt."""
    seed: int = 0
    """Of what is drawn: a line with the same seed has the same text whatever its neighbours."""
    required: tuple[Tokens, ...] = ()
    """Sequences the answer must contain after its prefix."""
    forbidden: tuple[Tokens, ...] = ()
    """Sequences the answer must not contain, but for those in its prefix."""

    def __post_init__(self) -> None:
        _require(self.max_length >= 0, f"max_length = {self.max_length} must not be negative")
        _require(all(self.required), "required holds an empty sequence; leave it out")
        _require(all(self.forbidden), "forbidden holds an empty sequence, and every text contains that; leave it out")
        for wanted in self.required:
            for unwanted in self.forbidden:
                _require(
                    not _contains(wanted, unwanted),
                    f"required {wanted} contains forbidden {unwanted}: there is no such answer",
                )
        given = len(self.prefix)
        _require(given <= self.max_length, f"prefix has {given} tokens, more than max_length = {self.max_length}")
        needed = len(self.prefix) + sum(map(len, self.required))
        _require(
            not self.required or needed <= self.max_length,
            f"prefix and required sequences have {needed} tokens, more than max_length = {self.max_length}",
        )


def _contains(whole: Tokens, part: Tokens) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))


def _require(fine: bool, fault: str) -> None:
    if not fine:
        raise ConfigError(fault)
