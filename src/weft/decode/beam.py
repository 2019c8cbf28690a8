"""Beam search: the W best beginnings of each line are followed at once.

The device scores all continuations of all beams and proposes the 2W best of each line: at most W of them are ends, so W
can go on. Among the first W an end finishes a hypothesis. A line stops when no beam can still beat the worst of the
hypotheses that are wanted, however it goes on: a bound, so nothing is lost by stopping.

A line that requires sequences gets more proposals: each beam's best token and those that bring a sequence closer. They
compete only with those that have met as much (dynamic beam allocation, Post & Vilar 2018): banks are visited in turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from weft.decode.constraints import Progress
from weft.decode.guide import Guide
from weft.decode.lines import Step, list_staying, read_prefixes
from weft.decode.options import Request, SearchOptions
from weft.decode.ranking import bound_score, penalise_coverage, penalise_length
from weft.errors import ShapeError
from weft.nn.softmax import find_top, log_softmax_
from weft.types import DecodeState, Hypothesis


class _Beam(NamedTuple):
    """A beginning: its last token after the beginning it goes on from."""

    before: "_Beam | None"
    token: int
    score: float
    """log P of the token."""
    total: float
    """log P of all that was chosen."""
    chosen: int
    """How many tokens were."""
    progress: Progress | None


class _Proposal(NamedTuple):
    """A token that may follow a beam."""

    score: float
    origin: int
    token: int


_Plain = tuple[float, int, int]
"""The same without names: of thousands a step, few are looked at."""


@dataclass(slots=True)
class _Line:
    number: int
    request: Request
    beams: list[_Beam]
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
        first = [_Beam(None, request.start, 0.0, 0.0, 0, self.guide.start(n)) for n, request in enumerate(requests)]
        self.lines = [_Line(n, request, [beam]) for n, (request, beam) in enumerate(zip(requests, first, strict=True))]
        self.found: list[list[Hypothesis]] = [[] for _ in requests]

    def advance(
        self, scores: Float[Tensor, "R V"], length: int, covered: list[list[float]] | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """One token more: the beams that go on of each line, and their tokens; W of each."""
        origins, tokens = [], []
        width = self.options.beam
        for place, (line, proposals) in enumerate(zip(self.lines, self._propose(scores, length), strict=True)):
            came_from: list[int] = []
            if line.done:
                pass
            elif length < len(line.request.prefix):
                came_from = list(range(len(line.beams)))
                line.beams = [beam._replace(token=line.request.prefix[length]) for beam in line.beams]
            else:
                came_from = self._extend(line, proposals, length + 1, None if covered is None else covered[place])
            # A line with fewer beams has its last ones filled up; nothing is proposed for them.
            origins.append((came_from + [0] * width)[:width])
            tokens.append(([beam.token for beam in line.beams] + [self.end_id] * width)[:width])
        return origins, tokens

    def _propose(self, scores: Float[Tensor, "R V"], length: int) -> list[list[_Plain]]:
        """The 2W best continuations of each line, best first; where it requires something, more, and bank by bank."""
        lines, width = self.lines, len(scores) // len(self.lines)
        rows = [(line, beam) for line in lines for beam in (line.beams + [_NOTHING] * width)[:width]]
        scores = log_softmax_(scores)
        self.guide.block(scores, [(line.number, beam.progress) for line, beam in rows], length)
        count = min(2 * self.options.beam, scores.shape[1])
        best, ids = find_top(scores, count)
        totals = torch.tensor([beam.total for _, beam in rows], dtype=scores.dtype, device=scores.device)
        joint = (best + totals.unsqueeze(1)).view(len(lines), -1)
        joint, index = joint.topk(min(2 * self.options.beam, joint.shape[1]))
        parts = [t.view(len(lines), -1).gather(1, index) for t in (best, ids)]
        allowed = (joint > -torch.inf).sum(1).tolist()  # the first of each line, for they are sorted
        proposals = [
            list(zip(*(column[:number] for column in line), strict=True))
            for number, *line in zip(allowed, *(t.tolist() for t in (parts[0], index // count, parts[1])), strict=True)
        ]
        for place, line in enumerate(lines):
            if line.request.required and not line.done:
                own = slice(place * width, place * width + len(line.beams))
                heads = zip(best[own, 0].tolist(), range(width), ids[own, 0].tolist(), strict=False)
                offered = [_Proposal(*proposal) for proposal in (*proposals[place], *heads)]
                proposals[place] = self._allocate(line, offered, scores[own])
        return proposals

    def _allocate(self, line: _Line, proposals: list[_Proposal], scores: Float[Tensor, "R V"]) -> list[_Plain]:
        """With what the constraints want of each beam; the best of each bank first, then the second of each."""
        constraints = self.guide.constraints[line.number]
        assert constraints is not None
        banks: dict[int, list[tuple[float, _Proposal]]] = {}
        wanted = [
            _Proposal(scores[origin, token].item(), origin, token)
            for origin, beam in enumerate(line.beams)
            if beam.progress is not None
            for token in constraints.list_wanted(beam.progress)
        ]
        for proposal in {(p.origin, p.token): p for p in proposals + wanted if p.score > -torch.inf}.values():
            beam = line.beams[proposal.origin]
            assert beam.progress is not None
            bank = constraints.count(constraints.advance(beam.progress, proposal.token))
            banks.setdefault(bank, []).append((beam.total + proposal.score, proposal))
        ranked = [
            (rank, -bank, proposal)
            for bank, members in banks.items()
            for rank, (_, proposal) in enumerate(sorted(members, key=lambda member: member[0], reverse=True))
        ]
        return [proposal for *_, proposal in sorted(ranked)]

    def _extend(self, line: _Line, proposals: list[_Plain], length: int, covered: list[float] | None) -> list[int]:
        """Let the best go on; returns where they come from."""
        origins: list[int] = []
        beams: list[_Beam] = []
        before = line.beams
        width, request = self.options.beam, line.request
        for rank, (score, origin, token) in enumerate(proposals):
            last = before[origin]
            if token != self.end_id and len(beams) < width:
                progress = self.guide.advance(line.number, last.progress, token)
                beams.append(_Beam(last, token, score, last.total + score, last.chosen + 1, progress))
                origins.append(origin)
            elif token == self.end_id and rank < width:
                end = _Beam(last, token, score, last.total + score, last.chosen + 1, None)
                self._keep(line, end, covered[origin] if covered else 0.0, finished=True)
        line.beams = beams
        if length == request.max_length:
            for origin, beam in zip(origins, beams, strict=True):
                self._keep(line, beam, covered[origin] if covered else 0.0, finished=False)
        elif not beams and not line.kept:  # nothing was allowed
            for origin, beam in enumerate(before):
                self._keep(line, beam, covered[origin] if covered else 0.0, finished=False)
        elif beams and not self._is_settled(line):
            return origins
        line.done, self.found[line.number] = True, line.kept
        return origins

    def _is_settled(self, line: _Line) -> bool:
        """Whether no beam can still come to be among the best."""
        if len(line.kept) < self.options.nbest:
            return False
        longest, alpha = line.request.max_length - len(line.request.prefix), self.options.length_penalty
        return max(bound_score(b.total, b.chosen, longest, alpha) for b in line.beams) <= line.kept[-1].score

    def _keep(self, line: _Line, beam: _Beam, covered: float, *, finished: bool) -> None:
        score = penalise_length(beam.total, beam.chosen, self.options.length_penalty) + covered
        if len(line.kept) == self.options.nbest and score <= line.kept[-1].score:
            return
        tokens, scores = _trace(beam)
        ids = line.request.prefix + tokens[: -1 if finished else None]
        line.kept.append(Hypothesis(ids, score, scores, finished))
        line.kept.sort(key=lambda hypothesis: hypothesis.score, reverse=True)
        del line.kept[self.options.nbest :]


_NOTHING = _Beam(None, 0, 0.0, -torch.inf, 0, None)


def _trace(beam: _Beam) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The tokens that were chosen, and log P of each."""
    tokens, scores = [], []
    while beam.before is not None:
        tokens.append(beam.token)
        scores.append(beam.score)
        beam = beam.before
    return tuple(reversed(tokens)), tuple(reversed(scores))
