"""Beam search: the W best partial hypotheses of each line are followed at once.

The device scores all continuations of all beams and proposes the 2W best of each line: at most W of them are ends, so W
others remain. (Where E tokens end an answer, it proposes (1 + E)W.) An end among the first W finishes a hypothesis. A
line stops when none of its beams can still beat the worst of the wanted hypotheses, however it continues: this is a
bound, so that stopping loses nothing.

A line with required sequences gets more candidates: each beam's best token, and the tokens that continue a sequence.
Candidates that contain the same number of required tokens form a bank, and beams are filled from each bank in turn
(dynamic beam allocation, Post & Vilar 2018).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.decode.constraints import Constraints, Matches
from seqloom.decode.greedy import NAN_SCORES, Step, count_read, find_active, read_prefixes
from seqloom.decode.options import Request, SearchOptions, Tokens, penalise_length
from seqloom.decode.repetition import Repetition
from seqloom.devices import read, send
from seqloom.errors import RunError, ShapeError
from seqloom.nn.cross_entropy import find_top, normalise
from seqloom.types import DecodeState, Hypothesis

_T = TypeVar("_T")


Candidate = tuple[int, int, float]
"""A token that may follow: the beam that it continues, the token, and its log-probability."""


@dataclass(slots=True)
class Line:
    """What is known of a line during the search."""

    number: int
    request: Request
    matches: list[Matches | None]
    """What the text of each beam matches."""
    totals: list[float] = field(default_factory=lambda: [0.0])
    """The log-probability of each beam."""
    history: list[list[Candidate]] = field(default_factory=list)
    """The candidates chosen at each step, one for each beam."""
    kept: list[Hypothesis] = field(default_factory=list)
    """The best hypotheses so far that are finished or cut, best first."""
    done: bool = False

    def trace(self, beam: int) -> list[tuple[int, float]]:
        """The tokens of a beam, and the log-probability of each."""
        path = []
        for chosen in reversed(self.history):
            beam, token, score = chosen[beam]
            path.append((token, score))
        return path[::-1]

    def list_read(self) -> list[list[int]]:
        """All tokens that each beam has read."""
        before = [self.request.start, *self.request.prefix]
        return [[*before, *(token for token, _ in self.trace(beam))] for beam in range(len(self.totals))]


@torch.inference_mode()
def search_beams(step: Step, state: DecodeState, search: "BeamSearch") -> list[list[Hypothesis]]:
    """The hypotheses of each line, best first."""
    width, weight = search.options.beam, search.options.coverage_penalty
    same = list(range(width))
    coverage = _unpack_attention(state) if weight else None
    scores, state = read_prefixes(step, state, search.requests)
    while True:
        penalties = None
        if coverage is not None:
            coverage = coverage + _unpack_attention(state)
            penalties = _penalise_coverage(coverage, weight)
        origins, tokens = search.advance(scores, count_read(state), penalties)
        active = find_active([line.done for line in search.lines])
        if active is not None:
            if not active:
                return [search.found[line] for line in range(len(search.requests))]
            kept = torch.tensor(active)
            state = state.select(kept)
            coverage = None if coverage is None else coverage.index_select(0, send(kept, scores.device))
            search.lines = [search.lines[line] for line in active]
            origins, tokens = [origins[line] for line in active], [tokens[line] for line in active]
        if state.width < width or any(row != same for row in origins):
            index = send(torch.tensor(origins), scores.device)
            state = state.branch(index)
            if coverage is not None:
                coverage = coverage.gather(1, index.unsqueeze(2).expand(-1, -1, coverage.shape[2]))
        scores, state = step(send(torch.tensor(tokens).view(-1, 1), scores.device), state)


def _unpack_attention(state: DecodeState) -> Float[Tensor, "B W S"]:
    if state.attention is None:
        raise ShapeError("a coverage penalty needs attention weights; start the state with attention=True")
    return state.attention.view(-1, state.width, state.attention.shape[1])


def _penalise_coverage(coverage: Float[Tensor, "B W S"], beta: float) -> Float[Tensor, "B W"]:
    """β Σ_i log min(coverage_i, 1)."""
    return beta * coverage.clamp(torch.finfo(coverage.dtype).tiny, 1.0).log().sum(-1)


class BeamSearch:
    """What runs on the host: which beams continue, and which hypotheses are finished."""

    def __init__(self, requests: Sequence[Request], options: SearchOptions, *, ends: Tokens, never: Tokens) -> None:
        self.requests, self.options, self.ends = requests, options, ends
        self.constraints = Constraints(requests, options, ends=ends, never=never)
        self.repetition = Repetition(options, ends) if options.limits_repetition else None
        self.lines: list[Line] = []
        self.found: dict[int, list[Hypothesis]] = {}
        """The hypotheses of each line that is done, by its number."""
        for number, request in enumerate(requests):
            self.add(number, request)

    def add(self, number: int, request: Request) -> None:
        """Let a line come in, as the last one."""
        self.constraints.add([request])
        self.lines.append(Line(number, request, [Matches.start(request)]))

    def advance(
        self, scores: Float[Tensor, "R V"], lengths: Sequence[int], penalties: Float[Tensor, "B W"] | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Extend every line by one token: the beams that its W new beams continue, and their tokens.

        `lengths` are the numbers of tokens that each line has after its start.
        """
        all_origins, all_tokens = [], []
        found, coverage = self.propose(scores, lengths, penalties)
        for index, (line, length, proposed) in enumerate(zip(self.lines, lengths, found, strict=True)):
            chosen: list[Candidate] = []
            if not line.done and length < len(line.request.prefix):
                chosen = [(0, line.request.prefix[length], 0.0)]
            elif not line.done:
                chosen = self.extend(line, proposed, length + 1, coverage[index] if coverage else None)
            # A line with fewer than W beams gets some more, for which nothing is proposed.
            chosen = _fill(chosen, (0, next(iter(self.ends), 0), 0.0), self.options.beam)
            all_origins.append([origin for origin, _, _ in chosen])
            all_tokens.append([token for _, token, _ in chosen])
        return all_origins, all_tokens

    def propose(
        self, scores: Float[Tensor, "R V"], lengths: Sequence[int], penalties: Float[Tensor, "B W"] | None
    ) -> tuple[list[list[Candidate]], list[list[float]]]:
        """The best candidates of each line, best first; with required sequences, more of them, from each bank.

        Everything that the host needs is read at once, the penalties on coverage, too.
        """
        lines, width = self.lines, len(scores) // len(self.lines)
        rows = [matches for line in lines for matches in _fill(line.matches, None, width)]
        past = self.list_read(width, lengths)
        if self.repetition is not None:
            self.repetition.penalise(scores, past)
        normalisers, bounds = normalise(scores)
        self.constraints.mask(scores, rows, [length for length in lengths for _ in range(width)])
        if self.repetition is not None:
            self.repetition.ban(scores, past, [() if one is None else one.list_wanted() for one in rows])
        wanted = (1 + len(self.ends)) * self.options.beam
        count = min(wanted, scores.shape[1])
        best, ids = find_top(scores, count, bounds)
        best = best - normalisers.unsqueeze(1)
        totals = [total for line in lines for total in _fill(line.totals, -torch.inf, width)]
        joint = (best + send(torch.tensor(totals, dtype=best.dtype), best.device).unsqueeze(1)).view(len(lines), -1)
        joint, index = joint.topk(min(wanted, joint.shape[1]))
        allowed = (joint > -torch.inf).sum(1)  # how many of each line, which are its first
        columns = (index // count, *(t.view(len(lines), -1).gather(1, index) for t in (ids, best)))
        parts, needed = [allowed, *columns, normalisers], self._list_needed()
        if needed:
            wanting = [(number * width + beam, token) for number, own in needed.items() for beam, token in own]
            at, tokens = send(torch.tensor(wanting, dtype=torch.long).view(-1, 2), scores.device).unbind(1)
            parts += [ids[:, 0], best[:, 0], scores[at, tokens] - normalisers[at]]
        limits, *candidates, sums = (found := read(*parts, *([] if penalties is None else [penalties])))[:5]
        rest = found[5:]
        coverage = [] if penalties is None else rest.pop()
        proposed: list[list[Candidate]] = [list(zip(*own, strict=True)) for own in zip(*candidates, strict=True)]
        if min(limits) < joint.shape[1]:
            if any(map(math.isnan, sums)):
                raise RunError(NAN_SCORES)
            proposed = [own[:end] for own, end in zip(proposed, limits, strict=True)]
        for number, own in needed.items():
            (first, gains), asked = (part[number * width :] for part in rest[:2]), rest[2]
            proposed[number] += zip(range(len(lines[number].totals)), first, gains, strict=False)
            proposed[number] += ((beam, token, asked.pop(0)) for beam, token in own)
            proposed[number] = self._allocate(lines[number], proposed[number])
        return proposed, coverage

    def _list_needed(self) -> dict[int, list[tuple[int, int]]]:
        """For each line with required sequences, the beams and the tokens that continue one there."""
        return {
            number: [(b, token) for b, one in enumerate(line.matches) if one is not None for token in one.list_wanted()]
            for number, line in enumerate(self.lines)
            if line.request.required and not line.done
        }

    def list_read(self, width: int, lengths: Sequence[int]) -> list[list[int]]:
        """If repetition is limited, all tokens that each beam has read; none while it reads its prefix."""
        if self.repetition is None:
            return []
        known = zip(self.lines, lengths, strict=True)
        read = (line.list_read() if length >= len(line.request.prefix) else [] for line, length in known)
        return [row for own in read for row in _fill(own, [], width)]

    def _allocate(self, line: Line, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates of a line with required sequences: the best of each bank, then the second of each, …"""
        matches = [one for one in line.matches if one is not None]
        banks: dict[int, list[Candidate]] = {}
        for candidate in {c[:2]: c for c in candidates if c[2] > -torch.inf}.values():
            banks.setdefault(matches[candidate[0]].advance(candidate[1]).count(), []).append(candidate)
        ranked = []
        for bank, members in banks.items():
            members.sort(key=lambda candidate: line.totals[candidate[0]] + candidate[2], reverse=True)
            ranked += [(rank, -bank, candidate) for rank, candidate in enumerate(members)]
        return [candidate for *_, candidate in sorted(ranked)]

    def extend(
        self, line: Line, proposed: list[Candidate], length: int, penalties: list[float] | None
    ) -> list[Candidate]:
        """Choose the candidates that a line continues with, and keep the hypotheses that end."""
        width, before = self.options.beam, line.totals
        for origin, token, score in proposed[:width]:
            if token in self.ends:
                self.keep(line, origin, [(token, score)], penalties, finished=True)
        chosen = [candidate for candidate in proposed if candidate[1] not in self.ends][:width]
        if length == line.request.max_length:
            for origin, token, score in chosen:
                self.keep(line, origin, [(token, score)], penalties, finished=False)
            line.done = True
        elif not chosen and not line.kept:  # nothing was allowed
            for beam in range(len(before)):
                self.keep(line, beam, [], penalties, finished=False)
        line.history.append(chosen)
        line.totals = [before[origin] + score for origin, _, score in chosen]
        if matches := [one for one in line.matches if one is not None]:
            line.matches = [matches[origin].advance(token) for origin, token, _ in chosen]
        line.done = line.done or not line.totals or self._is_settled(line)
        if line.done:
            self.found[line.number] = line.kept
        return chosen

    def _is_settled(self, line: Line) -> bool:
        """Whether no beam can enter the `nbest`, even if all that follows has probability 1 and coverage is full."""
        if len(line.kept) < self.options.nbest:
            return False
        total, alpha, next_length = max(line.totals), self.options.length_penalty, len(line.history) + 1
        longest = max(line.request.max_length - len(line.request.prefix), next_length)
        bound = max(penalise_length(total, next_length, alpha), penalise_length(total, longest, alpha))
        return bound <= line.kept[-1].score

    def keep(
        self, line: Line, beam: int, more: list[tuple[int, float]], penalties: list[float] | None, *, finished: bool
    ) -> None:
        """Keep a beam and at most one token `more` as a hypothesis, if it is among the `nbest`."""
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
