"""Beam search: the W best beginnings of each line are followed at once.

The device scores all continuations of all beams and proposes the 2W best of each line: at most W of them are ends, so W
can go on. Among the first W an end finishes a hypothesis. A line stops when no beam can still beat the worst of the
hypotheses that are wanted, however it goes on: a bound, so nothing is lost by stopping.

A line that requires sequences gets more proposals: each beam's best token and those that bring a sequence closer. They
compete only with those that have met as much (dynamic beam allocation, Post & Vilar 2018): banks are visited in turn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.decode.constraints import Progress
from seqloom.decode.guide import Guide
from seqloom.decode.lines import NOT_NUMBERS, Step, list_staying, read_prefixes
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.ranking import bound_score, penalise_coverage, penalise_length
from seqloom.errors import RunError, ShapeError
from seqloom.nn.cross_entropy import find_top, normalise
from seqloom.types import DecodeState, Hypothesis

_T = TypeVar("_T")


class _Choices(NamedTuple):
    """Tokens that may follow, or did: columns of equal length, best first."""

    origins: list[int]
    """The beam that each goes on from."""
    tokens: list[int]
    scores: list[float]
    """log P of each token."""

    def pick(self, places: Iterable[int]) -> "_Choices":
        """Some of them."""
        origins, tokens, scores = self
        picked = [(origins[n], tokens[n], scores[n]) for n in places]
        return _Choices([p[0] for p in picked], [p[1] for p in picked], [p[2] for p in picked])

    def add(self, more: "_Choices") -> None:
        """Put more of them behind these."""
        self.origins.extend(more.origins)
        self.tokens.extend(more.tokens)
        self.scores.extend(more.scores)

    def cut(self, count: int) -> "_Choices":
        """The best of them."""
        return _Choices(self.origins[:count], self.tokens[:count], self.scores[:count])


@dataclass(slots=True)
class _Line:
    number: int
    request: Request
    progress: list[Progress | None]
    """Of each beam."""
    totals: list[float] = field(default_factory=lambda: [0.0])
    """log P of all that was chosen, of each beam."""
    history: _Choices = field(default_factory=lambda: _Choices([], [], []))
    """What was chosen, step after step; the last are the beams."""
    starts: list[int] = field(default_factory=list)
    """Where each step begins in it."""
    kept: list[Hypothesis] = field(default_factory=list)
    """The best so far that are finished or cut, best first."""
    done: bool = False


@torch.inference_mode()
def search_beams(
    step: Step, state: DecodeState, requests: Sequence[Request], options: SearchOptions, *, end_id: int
) -> list[list[Hypothesis]]:
    """The hypotheses of each line, best first."""
    search = _Search(requests, options, end_id)
    width, weight = options.beam, options.coverage_penalty
    coverage = _unpack_attention(state) if weight else None
    scores, state = read_prefixes(step, state, requests)
    while True:
        covered = None
        if coverage is not None:
            coverage = coverage + _unpack_attention(state)
            covered = penalise_coverage(coverage, weight).tolist()
        origins, tokens = search.advance(scores, state.position - 1, covered)
        staying = list_staying([line.done for line in search.lines])
        if staying is not None:
            if not staying:
                return search.found
            kept = torch.tensor(staying, device=scores.device)
            state, coverage = state.select(kept), None if coverage is None else coverage.index_select(0, kept)
            search.lines = [search.lines[line] for line in staying]
            origins, tokens = [origins[line] for line in staying], [tokens[line] for line in staying]
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


class _Search:
    """The host's side: which beams go on, and what is finished."""

    def __init__(self, requests: Sequence[Request], options: SearchOptions, end_id: int) -> None:
        self.options, self.end_id = options, end_id
        self.guide = Guide(requests, options, end_id=end_id)
        self.lines = [_Line(n, request, [self.guide.start(n)]) for n, request in enumerate(requests)]
        self.found: list[list[Hypothesis]] = [[] for _ in requests]

    def advance(
        self, scores: Float[Tensor, "R V"], length: int, covered: list[list[float]] | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """One token more: the beams that go on of each line, and their tokens; W of each."""
        all_origins, all_tokens = [], []
        width = self.options.beam
        for place, (line, proposed) in enumerate(zip(self.lines, self._propose(scores, length), strict=True)):
            origins: list[int] = []
            tokens: list[int] = []
            if not line.done and length < len(line.request.prefix):
                tokens = [line.request.prefix[length]]
            elif not line.done:
                looked = None if covered is None else covered[place]
                origins, tokens, _ = self._extend(line, proposed, length + 1, looked)
            # A line with fewer beams has its last ones filled up; nothing is proposed for them.
            all_origins.append(_fill(origins, 0, width))
            all_tokens.append(_fill(tokens, self.end_id, width))
        return all_origins, all_tokens

    def _propose(self, scores: Float[Tensor, "R V"], length: int) -> list[_Choices]:
        """The 2W best continuations of each line, best first; where it requires something, more, and bank by bank."""
        lines, width = self.lines, len(scores) // len(self.lines)
        normalisers, bounds = normalise(scores)
        rows = ((line.number, progress) for line in lines for progress in _fill(line.progress, None, width))
        self.guide.block(scores, rows, length)
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
        proposals = [_Choices(*columns) for columns in zip(origins, tokens, log_probs, strict=True)]
        if min(allowed) < joint.shape[1]:
            if normalisers.isnan().any():
                raise RunError(NOT_NUMBERS)
            proposals = [choices.cut(end) for choices, end in zip(proposals, allowed, strict=True)]
        for place, line in enumerate(lines):
            if line.request.required and not line.done:
                own = slice(place * width, place * width + len(line.totals))
                heads = zip(range(width), ids[own, 0].tolist(), best[own, 0].tolist(), strict=False)
                log_p = scores[own] - normalisers[own].unsqueeze(1)
                proposals[place] = self._allocate(line, [*zip(*proposals[place], strict=True), *heads], log_p)
        return proposals

    def _allocate(self, line: _Line, proposals: list[tuple[int, int, float]], log_p: Float[Tensor, "W V"]) -> _Choices:
        """With what the constraints want of each beam; the best of each bank first, then the second of each."""
        constraints = self.guide.constraints[line.number]
        assert constraints is not None
        banks: dict[int, list[tuple[float, tuple[int, int, float]]]] = {}
        wanted = [
            (origin, token, log_p[origin, token].item())
            for origin, progress in enumerate(line.progress)
            if progress is not None
            for token in constraints.list_wanted(progress)
        ]
        for origin, token, score in {p[:2]: p for p in proposals + wanted if p[2] > -torch.inf}.values():
            progress = line.progress[origin]
            assert progress is not None
            bank = constraints.count(constraints.advance(progress, token))
            banks.setdefault(bank, []).append((line.totals[origin] + score, (origin, token, score)))
        ranked = [
            (rank, -bank, proposal)
            for bank, members in banks.items()
            for rank, (_, proposal) in enumerate(sorted(members, key=lambda member: member[0], reverse=True))
        ]
        ordered = [proposal for *_, proposal in sorted(ranked)]
        return _Choices([p[0] for p in ordered], [p[1] for p in ordered], [p[2] for p in ordered])

    def _extend(self, line: _Line, proposed: _Choices, length: int, covered: list[float] | None) -> _Choices:
        """Let the best go on."""
        width, before = self.options.beam, line.totals
        chosen = proposed.cut(width)
        if self.end_id in proposed.tokens:
            for origin, token, score in zip(*chosen, strict=True):
                if token == self.end_id:
                    self._keep(line, origin, [(token, score)], covered, finished=True)
            going = [n for n, token in enumerate(proposed.tokens) if token != self.end_id][:width]
            chosen = proposed.pick(going)
        if length == line.request.max_length:
            for origin, token, score in zip(*chosen, strict=True):
                self._keep(line, origin, [(token, score)], covered, finished=False)
            line.done = True
        elif not chosen.tokens and not line.kept:  # nothing was allowed
            for beam in range(len(before)):
                self._keep(line, beam, [], covered, finished=False)
        line.starts.append(len(line.history.tokens))
        line.history.add(chosen)
        line.totals = [before[origin] + score for origin, score in zip(chosen.origins, chosen.scores, strict=True)]
        line.progress = self.guide.advance_beams(line.number, line.progress, chosen.origins, chosen.tokens)
        line.done = line.done or not line.totals or self._is_settled(line)
        if line.done:
            self.found[line.number] = line.kept
        return chosen

    def _is_settled(self, line: _Line) -> bool:
        """Whether no beam can still come to be among the best."""
        if len(line.kept) < self.options.nbest:
            return False
        longest, alpha = line.request.max_length - len(line.request.prefix), self.options.length_penalty
        most = bound_score(max(line.totals), len(line.starts), longest, alpha)
        return most <= line.kept[-1].score

    def _keep(
        self, line: _Line, beam: int, more: list[tuple[int, float]], covered: list[float] | None, *, finished: bool
    ) -> None:
        """A hypothesis: what a beam has chosen, and a token more."""
        total, length = line.totals[beam] + sum(score for _, score in more), len(line.starts) + len(more)
        score = penalise_length(total, length, self.options.length_penalty) + (covered[beam] if covered else 0.0)
        if len(line.kept) == self.options.nbest and score <= line.kept[-1].score:
            return
        path = [*_trace(line, beam), *more]
        ids = line.request.prefix + tuple(token for token, _ in (path[:-1] if finished else path))
        line.kept.append(Hypothesis(ids, score, tuple(score for _, score in path), finished))
        line.kept.sort(key=lambda hypothesis: hypothesis.score, reverse=True)
        del line.kept[self.options.nbest :]


def _fill(values: list[_T], filling: _T, width: int) -> list[_T]:
    return values + [filling] * (width - len(values))


def _trace(line: _Line, beam: int) -> list[tuple[int, float]]:
    """The tokens that a beam has chosen, and log P of each."""
    path, (origins, tokens, scores) = [], line.history
    for start in reversed(line.starts):
        path.append((tokens[start + beam], scores[start + beam]))
        beam = origins[start + beam]
    return path[::-1]
