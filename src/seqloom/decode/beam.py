"""Beam search: the W best beginnings of each line are followed at once.

The device scores all continuations of all beams and proposes the 2W best of each line: at most W of them are ends, so W
can go on. Among the first W, an end finishes a hypothesis. A line stops when no beam can still beat the worst of the
hypotheses that are wanted, however it goes on: a bound, so nothing is lost by stopping.

A line that requires sequences gets more candidates: each beam's best token and those that bring a sequence closer. They
compete only with those that have met as much (dynamic beam allocation, Post & Vilar 2018): banks are visited in turn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.decode.constraints import Constraints, Matches
from seqloom.decode.greedy import NOT_NUMBERS, Step, list_going, read_prefixes
from seqloom.decode.options import Request, SearchOptions, Tokens, penalise_length
from seqloom.errors import RunError, ShapeError
from seqloom.nn.cross_entropy import find_top, normalise
from seqloom.types import DecodeState, Hypothesis

_T = TypeVar("_T")


class _Candidates(NamedTuple):
    """Tokens that may follow: columns of equal length, best first."""

    origins: list[int]
    """The beam that each goes on from."""
    tokens: list[int]
    scores: list[float]
    """log P of each token."""

    def pick(self, places: Iterable[int]) -> "_Candidates":
        return _collect([(self.origins[n], self.tokens[n], self.scores[n]) for n in places])

    def cut(self, count: int) -> "_Candidates":
        return _Candidates(self.origins[:count], self.tokens[:count], self.scores[:count])


def _collect(rows: list[tuple[int, int, float]]) -> _Candidates:
    return _Candidates([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


@dataclass(slots=True)
class _Line:
    number: int
    request: Request
    matches: list[Matches | None]
    """Of each beam."""
    totals: list[float] = field(default_factory=lambda: [0.0])
    """log P of all that was chosen, of each beam."""
    history: list[_Candidates] = field(default_factory=list)
    """What was chosen, step after step; the last are the beams."""
    kept: list[Hypothesis] = field(default_factory=list)
    """The best so far that are finished or cut, best first."""
    done: bool = False

    def trace(self, beam: int) -> list[tuple[int, float]]:
        """The tokens that a beam has chosen, and log P of each."""
        path = []
        for origins, tokens, scores in reversed(self.history):
            path.append((tokens[beam], scores[beam]))
            beam = origins[beam]
        return path[::-1]


@torch.inference_mode()
def search_beams(
    step: Step, state: DecodeState, requests: Sequence[Request], options: SearchOptions, *, end_id: int, never: Tokens
) -> list[list[Hypothesis]]:
    """The hypotheses of each line, best first."""
    search = _BeamSearch(requests, options, end_id, never)
    width, weight = options.beam, options.coverage_penalty
    coverage = _unpack_attention(state) if weight else None
    scores, state = read_prefixes(step, state, requests)
    while True:
        penalties = None
        if coverage is not None:
            coverage = coverage + _unpack_attention(state)
            penalties = _penalise_coverage(coverage, weight).tolist()
        origins, tokens = search.advance(scores, state.position - 1, penalties)
        going = list_going([line.done for line in search.lines])
        if going is not None:
            if not going:
                return search.found
            kept = torch.tensor(going, device=scores.device)
            state, coverage = state.select(kept), None if coverage is None else coverage.index_select(0, kept)
            search.lines = [search.lines[line] for line in going]
            origins, tokens = [origins[line] for line in going], [tokens[line] for line in going]
        if state.width < width or any(row != list(range(width)) for row in origins):
            index = torch.tensor(origins, device=scores.device)
            state = state.branch(index)
            if coverage is not None:
                coverage = coverage.gather(1, index.unsqueeze(2).expand(-1, -1, coverage.shape[2]))
        scores, state = step(torch.tensor(tokens, device=scores.device).view(-1, 1), state)


def _unpack_attention(state: DecodeState) -> Float[Tensor, "B W S"]:
    if state.attention is None:
        raise ShapeError("a coverage penalty needs what the model attends to; start its state with attention=True")
    return state.attention.view(-1, state.width, state.attention.shape[1])


def _penalise_coverage(coverage: Float[Tensor, "B W S"], beta: float) -> Float[Tensor, "B W"]:
    """β Σ_i log min(coverage_i, 1)."""
    return beta * coverage.clamp(torch.finfo(coverage.dtype).tiny, 1.0).log().sum(-1)


class _BeamSearch:
    """The host's side: which beams go on, and what is finished."""

    def __init__(self, requests: Sequence[Request], options: SearchOptions, end_id: int, never: Tokens) -> None:
        self.options, self.end_id = options, end_id
        self.constraints = Constraints(requests, options, end_id=end_id, never=never)
        self.lines = [_Line(n, request, [Matches.start(request)]) for n, request in enumerate(requests)]
        self.found: list[list[Hypothesis]] = [[] for _ in requests]

    def advance(
        self, scores: Float[Tensor, "R V"], length: int, penalties: list[list[float]] | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """One token more: the beams that go on of each line, and their tokens; W of each."""
        all_origins, all_tokens = [], []
        width = self.options.beam
        for place, (line, candidates) in enumerate(zip(self.lines, self._propose(scores, length), strict=True)):
            origins: list[int] = []
            tokens: list[int] = []
            if not line.done and length < len(line.request.prefix):
                tokens = [line.request.prefix[length]]
            elif not line.done:
                own = None if penalties is None else penalties[place]
                origins, tokens, _ = self._extend(line, candidates, length + 1, own)
            # A line with fewer beams has its last ones filled up; nothing is proposed for them.
            all_origins.append(_fill(origins, 0, width))
            all_tokens.append(_fill(tokens, self.end_id, width))
        return all_origins, all_tokens

    def _propose(self, scores: Float[Tensor, "R V"], length: int) -> list[_Candidates]:
        """The 2W best continuations of each line, best first; where it requires something, more, and bank by bank."""
        lines, width = self.lines, len(scores) // len(self.lines)
        normalisers, bounds = normalise(scores)
        rows = (matches for line in lines for matches in _fill(line.matches, None, width))
        self.constraints.mask(scores, rows, length)
        count = min(2 * self.options.beam, scores.shape[1])
        best, ids = find_top(scores, count, bounds)
        best = best - normalisers.unsqueeze(1)
        totals = [total for line in lines for total in _fill(line.totals, -torch.inf, width)]
        joint = (best + torch.tensor(totals, dtype=best.dtype, device=best.device).unsqueeze(1)).view(len(lines), -1)
        joint, index = joint.topk(min(2 * self.options.beam, joint.shape[1]))
        allowed = (joint > -torch.inf).sum(1).tolist()  # the first of each line, for they are sorted
        origins, tokens, log_probs = (
            t.tolist() for t in (index // count, *(t.view(len(lines), -1).gather(1, index) for t in (ids, best)))
        )
        proposed = [_Candidates(*columns) for columns in zip(origins, tokens, log_probs, strict=True)]
        if min(allowed) < joint.shape[1]:
            if normalisers.isnan().any():
                raise RunError(NOT_NUMBERS)
            proposed = [candidates.cut(end) for candidates, end in zip(proposed, allowed, strict=True)]
        for place, line in enumerate(lines):
            if line.request.required and not line.done:
                own = slice(place * width, place * width + len(line.totals))
                heads = zip(range(width), ids[own, 0].tolist(), best[own, 0].tolist(), strict=False)
                log_p = scores[own] - normalisers[own].unsqueeze(1)
                proposed[place] = self._allocate(line, [*zip(*proposed[place], strict=True), *heads], log_p)
        return proposed

    def _allocate(
        self, line: _Line, candidates: list[tuple[int, int, float]], log_p: Float[Tensor, "W V"]
    ) -> _Candidates:
        """With the tokens that constraints want; the best of each bank first, then the second of each."""
        matches = [one for one in line.matches if one is not None]
        wanted = [
            (origin, token, log_p[origin, token].item())
            for origin, one in enumerate(matches)
            for token in one.list_wanted()
        ]
        banks: dict[int, list[tuple[float, tuple[int, int, float]]]] = {}
        for origin, token, score in {c[:2]: c for c in candidates + wanted if c[2] > -torch.inf}.values():
            bank = matches[origin].advance(token).count()
            banks.setdefault(bank, []).append((line.totals[origin] + score, (origin, token, score)))
        ranked = [
            (rank, -bank, candidate)
            for bank, members in banks.items()
            for rank, (_, candidate) in enumerate(sorted(members, key=lambda member: member[0], reverse=True))
        ]
        return _collect([candidate for *_, candidate in sorted(ranked)])

    def _extend(self, line: _Line, proposed: _Candidates, length: int, penalties: list[float] | None) -> _Candidates:
        """Let the best go on."""
        width, before = self.options.beam, line.totals
        chosen = proposed.cut(width)
        if self.end_id in proposed.tokens:
            for origin, token, score in zip(*chosen, strict=True):
                if token == self.end_id:
                    self._keep(line, origin, [(token, score)], penalties, finished=True)
            chosen = proposed.pick([n for n, token in enumerate(proposed.tokens) if token != self.end_id][:width])
        if length == line.request.max_length:
            for origin, token, score in zip(*chosen, strict=True):
                self._keep(line, origin, [(token, score)], penalties, finished=False)
            line.done = True
        elif not chosen.tokens and not line.kept:  # nothing was allowed
            for beam in range(len(before)):
                self._keep(line, beam, [], penalties, finished=False)
        line.history.append(chosen)
        line.totals = [before[origin] + score for origin, score in zip(chosen.origins, chosen.scores, strict=True)]
        if matches := [one for one in line.matches if one is not None]:
            line.matches = [matches[n].advance(t) for n, t in zip(chosen.origins, chosen.tokens, strict=True)]
        line.done = line.done or not line.totals or self._is_settled(line)
        if line.done:
            self.found[line.number] = line.kept
        return chosen

    def _is_settled(self, line: _Line) -> bool:
        """Whether no beam can become one of the best, even with probability 1 from here on and full coverage."""
        if len(line.kept) < self.options.nbest:
            return False
        total, alpha, next_length = max(line.totals), self.options.length_penalty, len(line.history) + 1
        longest = max(line.request.max_length - len(line.request.prefix), next_length)
        bound = max(penalise_length(total, next_length, alpha), penalise_length(total, longest, alpha))
        return bound <= line.kept[-1].score

    def _keep(
        self, line: _Line, beam: int, more: list[tuple[int, float]], penalties: list[float] | None, *, finished: bool
    ) -> None:
        """A hypothesis: what a beam has chosen, and a token more."""
        total, length = line.totals[beam] + sum(score for _, score in more), len(line.history) + len(more)
        score = penalise_length(total, length, self.options.length_penalty) + (penalties[beam] if penalties else 0.0)
        if len(line.kept) == self.options.nbest and score <= line.kept[-1].score:
            return
        path = [*line.trace(beam), *more]
        ids = line.request.prefix + tuple(token for token, _ in (path[:-1] if finished else path))
        line.kept.append(Hypothesis(ids, score, tuple(score for _, score in path), finished))
        line.kept.sort(key=lambda hypothesis: hypothesis.score, reverse=True)
        del line.kept[self.options.nbest :]


def _fill(values: list[_T], filling: _T, width: int) -> list[_T]:
    return values + [filling] * (width - len(values))
