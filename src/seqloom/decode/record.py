"""The record of a line's search: what was considered at each step, what was kept, what was dropped, and why.

A candidate is a token that may follow a partial hypothesis. Along the path from the first step to a candidate

    total = Σ log P(token | what was read)        score = total / |Y|^α + β Σ_i log min(coverage_i, 1)

which is the score that it would have as an answer (options.py). A search follows or drops each candidate:

    kept       it is a beam of the next step
    finished   it is the last token of one of the `nbest` answers
    replaced   it was that, until a better answer took its place
    dropped    it was not followed

A record is made only when a search is given a `Recorder`; `recorded.py` is the search that fills it.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from seqloom.decode.options import Request, SearchOptions, Tokens, penalise_length
from seqloom.types import Hypothesis

Status = Literal["kept", "finished", "dropped", "replaced"]


@dataclass(slots=True)
class SearchCandidate:
    """A token that the search considered."""

    id: int
    """Its number in the record."""
    parent: int | None
    """The number of the candidate that it continues; None at the first step."""
    token: int
    text: str
    log_probability: float
    """Given what was read before, in natural logarithms."""
    total: float
    """The log-probability of the tokens from the first step to this one."""
    score: float
    """The total with its penalties for length and coverage."""
    status: Status = "dropped"
    reason: str | None = None
    """Why it was dropped, replaced or cut, or why no candidate that continues it was followed."""
    sample: int = 0
    """The number of the draw, where several answers are sampled."""


@dataclass(frozen=True, slots=True)
class SearchStep:
    """The candidates of a step, as the search ranked them, and then those that were banned."""

    length: int
    """The tokens of an answer that ends with one of them, including its prefix."""
    candidates: list[SearchCandidate] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SearchHypothesis:
    """An answer of the search."""

    ids: Tokens
    """Its tokens, including the prefix, without the end."""
    score: float
    log_probability: float
    finished: bool
    """Whether the model ended it."""
    steps: tuple[int, ...]
    """The numbers of its candidates."""


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """The search of one line."""

    steps: list[SearchStep]
    hypotheses: list[SearchHypothesis]
    """Best first."""
    options: dict[str, Any]
    prefix: Tokens
    """The tokens that every answer begins with; the first step comes after them."""
    note: str
    """Which candidates are listed."""

    def to_json(self) -> dict[str, Any]:
        """The record as a value that JSON can express."""
        return asdict(self)


class Recorder:
    """Asks a search for a record of each line; a recorder serves one search."""

    def __init__(self, spell: Callable[[int], str] = str) -> None:
        """`spell` gives the text of a token."""
        self.spell = spell
        self.lines: list[LineRecorder] = []
        """Filled during the search."""
        self.records: list[SearchRecord] = []
        """One for each request, when the search has ended."""

    def begin(self, requests: Sequence[Request], options: SearchOptions) -> None:
        """Begin the record of each request."""
        self.lines = [LineRecorder(request, options, self.spell) for request in requests]

    def select(self, lines: Sequence[int]) -> list["LineRecorder"]:
        """The records of some requests, by their index."""
        return [self.lines[line] for line in lines]

    def end(self, found: Sequence[Sequence[Hypothesis]]) -> None:
        """Write the record of each request, given its answers."""
        self.records = [line.write(answers) for line, answers in zip(self.lines, found, strict=True)]


class LineRecorder:
    """Writes the record of a line, step by step."""

    def __init__(self, request: Request, options: SearchOptions, spell: Callable[[int], str]) -> None:
        self.request, self.options, self.spell = request, options, spell
        self.steps: list[SearchStep] = []
        self.candidates: list[SearchCandidate] = []
        self.note = "Nothing was searched: the prefix is as long as an answer may be."

    def begin(self, length: int) -> None:
        """Begin the step at which answers have `length` tokens."""
        self.steps.append(SearchStep(length))

    def add(
        self,
        parent: SearchCandidate | None,
        token: int,
        log_probability: float,
        *,
        coverage: float = 0.0,
        reason: str | None = None,
        sample: int = 0,
    ) -> SearchCandidate:
        """Add a candidate to the step; it counts as dropped until the search says otherwise."""
        total = (0.0 if parent is None else parent.total) + log_probability
        candidate = SearchCandidate(
            id=len(self.candidates),
            parent=None if parent is None else parent.id,
            token=token,
            text=self.spell(token),
            log_probability=log_probability,
            total=total,
            score=penalise_length(total, len(self.steps), self.options.length_penalty) + coverage,
            reason=reason,
            sample=sample,
        )
        self.candidates.append(candidate)
        self.steps[-1].candidates.append(candidate)
        return candidate

    def write(self, hypotheses: Sequence[Hypothesis]) -> SearchRecord:
        """The record, once the answers are known."""
        followed = {one.parent for one in self.candidates if one.status in ("kept", "finished", "replaced")}
        for one in self.candidates:
            if one.status == "kept" and one.id not in followed:
                one.reason = "went no further: every candidate that continues it was dropped"
        ends = [one for one in self.candidates if one.status == "finished"]
        answers = [self._find_path(hypothesis, ends) for hypothesis in hypotheses]
        options = {option.name: getattr(self.options, option.name) for option in fields(SearchOptions)}
        more = {name: getattr(self.request, name) for name in ("max_length", "required", "forbidden")}
        return SearchRecord(self.steps, answers, {**options, **more}, self.request.prefix, self.note)

    def _find_path(self, hypothesis: Hypothesis, ends: list[SearchCandidate]) -> SearchHypothesis:
        """The answer with the candidates that it consists of, whose last one is taken from `ends`."""
        path: list[SearchCandidate] = []
        if hypothesis.token_scores:
            paths = ((end, self._trace(end)) for end in ends)
            last, path = next(found for found in paths if _agree(hypothesis, self.request, found[1]))
            ends.remove(last)
        return SearchHypothesis(
            hypothesis.ids,
            hypothesis.score,
            path[-1].total if path else 0.0,
            hypothesis.finished,
            tuple(candidate.id for candidate in path),
        )

    def _trace(self, candidate: SearchCandidate) -> list[SearchCandidate]:
        path = [candidate]
        while path[-1].parent is not None:
            path.append(self.candidates[path[-1].parent])
        return path[::-1]


def _agree(hypothesis: Hypothesis, request: Request, path: list[SearchCandidate]) -> bool:
    tokens = request.prefix + tuple(candidate.token for candidate in (path[:-1] if hypothesis.finished else path))
    return tokens == hypothesis.ids and hypothesis.token_scores == tuple(one.log_probability for one in path)
