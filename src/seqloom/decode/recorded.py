"""The searches of beam.py and greedy.py, written down as they go: the same results, and a record of each line.

Each class calls the search that it extends, and looks at what that was given, what it returned and what it kept. A
search sets the scores of banned tokens to −∞. The record has their log-probability before that, so that one can see
what a ban cost.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqloom.decode.beam import BeamSearch, Candidate, Line
from seqloom.decode.constraints import Constraints, Matches
from seqloom.decode.greedy import GreedySearch, Row, Token, truncate
from seqloom.decode.options import Request, SearchOptions, Tokens
from seqloom.decode.record import LineRecorder, SearchCandidate
from seqloom.decode.repetition import Repetition
from seqloom.nn.cross_entropy import normalise
from seqloom.types import Hypothesis

_LISTED = 5  # of the most probable tokens, where one of them is chosen
_NOTE_BEAM = (
    "Each step lists the best continuations of all beams that were allowed, and those that a ban kept out of the beam; "
    "all others that were allowed scored lower."
)
_NOTE_ONE = (
    f"Each step lists the {_LISTED} most probable tokens, the {_LISTED} most probable that were allowed, and the one "
    "that was chosen; all other tokens were less probable."
)


@dataclass
class _Beams:
    """What the record needs to know of a line between two steps."""

    record: LineRecorder
    now: list[SearchCandidate | None] = field(default_factory=lambda: [None])
    """The candidate that each beam ends with; None before the first step."""
    proposed: dict[tuple[int, int], SearchCandidate] = field(default_factory=dict)
    """The candidates of this step, by beam and token."""
    banned: list[tuple[Candidate, str]] = field(default_factory=list)
    """What a ban kept out of the beam at this step, each with its reason."""
    kept: list[tuple[Hypothesis, SearchCandidate | None]] = field(default_factory=list)
    """The `nbest` so far, each with its last candidate."""


class RecordedBeamSearch(BeamSearch):
    """Beam search with a record of each line."""

    def __init__(
        self,
        requests: Sequence[Request],
        options: SearchOptions,
        records: Sequence[LineRecorder],
        *,
        ends: Tokens,
        never: Tokens,
    ) -> None:
        super().__init__(requests, options, ends=ends, never=never)
        self._beams = [_Beams(record) for record in records]
        for record in records:
            record.note = _NOTE_BEAM

    def propose(
        self, scores: Float[Tensor, "R V"], lengths: Sequence[int], penalties: Float[Tensor, "B W"] | None
    ) -> tuple[list[list[Candidate]], list[list[float]]]:
        """Also find what is banned."""
        width = len(scores) // len(self.lines)
        read = self.list_read(width, lengths)
        log_p = _normalise(scores, self.repetition, read)
        found = super().propose(scores, lengths, penalties)
        banned = scores.isneginf()
        for number, (line, length) in enumerate(zip(self.lines, lengths, strict=True)):
            if line.done or length < len(line.request.prefix):
                continue
            rows = slice(number * width, number * width + len(line.totals))
            own = self._beams[line.number]
            own.banned = []
            for beam, token, score in self._find_banned(line, log_p[rows], banned[rows]):
                matches = line.matches[beam] if line.matches[0] is not None else None
                past = read[rows.start + beam] if read else ()
                reason = _explain_ban(self.constraints, self.repetition, token, matches, past, length)
                own.banned.append(((beam, token, score), reason))
        return found

    def _find_banned(self, line: Line, log_p: Float[Tensor, "W V"], banned: Bool[Tensor, "W V"]) -> Iterator[Candidate]:
        """The banned candidates that would have been in the beam, or among the ends that count."""
        width, others = self.options.beam, 0
        joint = (log_p + torch.tensor(line.totals, dtype=log_p.dtype, device=log_p.device).unsqueeze(1)).flatten()
        best, places = joint.topk(min((1 + len(self.ends)) * width, len(joint)))
        for rank, (total, place) in enumerate(zip(best.tolist(), places.tolist(), strict=True)):
            beam, token = divmod(place, log_p.shape[1])
            followed = (rank if token in self.ends else others) < width
            others += token not in self.ends
            if followed and total > -math.inf and banned[beam, token]:
                yield beam, token, log_p[beam, token].item()

    def extend(
        self, line: Line, proposed: list[Candidate], length: int, penalties: list[float] | None
    ) -> list[Candidate]:
        """Write down the candidates of a step, and what became of each."""
        own, matches, record = self._beams[line.number], line.matches, self._beams[line.number].record
        record.begin(length)
        coverage = penalties or [0.0] * len(own.now)
        own.proposed = {
            (beam, token): record.add(own.now[beam], token, score, coverage=coverage[beam])
            for beam, token, score in proposed
        }
        for (beam, token, score), reason in own.banned:
            record.add(own.now[beam], token, score, coverage=coverage[beam], reason=reason)
        chosen = super().extend(line, proposed, length, penalties)
        own.now = [own.proposed[beam, token] for beam, token, _ in chosen]
        if length < line.request.max_length:
            for candidate in own.now:
                assert candidate is not None
                candidate.status, candidate.reason = ("dropped", self._settle(line)) if line.done else ("kept", None)
        others = 0
        for rank, (beam, token, _) in enumerate(proposed):
            candidate, is_end = own.proposed[beam, token], token in self.ends
            if candidate.status == "dropped" and candidate.reason is None:
                before = matches[beam] if line.request.required else None
                count = None if before is None else before.advance(token).count()
                candidate.reason = self._explain_drop(rank if is_end else others, is_end, count)
            others += not is_end
        return chosen

    def keep(
        self, line: Line, beam: int, more: list[tuple[int, float]], penalties: list[float] | None, *, finished: bool
    ) -> None:
        """Write down what entered the `nbest`, and what left it."""
        super().keep(line, beam, more, penalties, finished=finished)
        own, limit = self._beams[line.number], line.request.max_length
        candidate = own.proposed[beam, more[0][0]] if more else own.now[beam]
        known = {id(hypothesis) for hypothesis, _ in own.kept}
        entered = [hypothesis for hypothesis in line.kept if id(hypothesis) not in known]
        end = (
            "the end came" if finished else f"cut at max_length = {limit}" if more else "no token was allowed to follow"
        )
        if candidate is not None and entered:
            candidate.status, candidate.reason = "finished", None if finished else end
        elif candidate is not None:
            worst = line.kept[-1].score
            candidate.status = "dropped"
            best = (
                f"the {len(line.kept)} best answers so far are" if len(line.kept) > 1 else "the best answer so far is"
            )
            candidate.reason = f"{end}, but {best} at least as good: {worst:.4g}"
        for hypothesis, last in own.kept:
            if last is not None and all(hypothesis is not one for one in line.kept):
                better = max(one.score for one in entered)
                last.status, last.reason = "replaced", f"an answer with the better score {better:.4g} took its place"
        own.kept = [pair for pair in own.kept if any(pair[0] is one for one in line.kept)]
        own.kept += [(hypothesis, candidate) for hypothesis in entered]

    def _settle(self, line: Line) -> str:
        covered = " and covered the whole source" if self.options.coverage_penalty else ""
        worst = f"{line.kept[-1].score:.4g}, the worst of the {len(line.kept)} wanted"
        return f"settled: even if all that follows had probability 1{covered}, its score could not pass {worst}"

    def _explain_drop(self, before: int, is_end: bool, count: int | None) -> str:
        """Why a candidate was not followed, given how many came before it and, if there are banks, which is its own."""
        width = self.options.beam
        if is_end:
            return f"an end counts only among the {width} best candidates: {before} came before it"
        if count is None:
            return f"outside the beam of {width}: {before} others scored higher"
        return (
            f"outside the beam of {width}, which is filled from the candidates with each number of required tokens in "
            f"turn: it has {count}, and {before} others came first"
        )


class RecordedGreedySearch(GreedySearch):
    """Greedy search and sampling with a record of each line."""

    def __init__(
        self,
        requests: Sequence[Request],
        options: SearchOptions,
        records: Sequence[LineRecorder],
        *,
        ends: Tokens,
        never: Tokens,
    ) -> None:
        super().__init__(requests, options, ends=ends, never=never)
        self._records = records
        self._last: dict[tuple[int, int], SearchCandidate] = {}
        """The last token of each sample of a line."""
        for record in records:
            record.note = _NOTE_ONE

    def advance(self, scores: Float[Tensor, "R V"], lengths: Sequence[int]) -> tuple[list[Token], Int[Tensor, "R"]]:
        """Also write down the candidates of each row, and what became of each."""
        before = [replace(row, read=[*row.read]) for row in self.rows]
        log_p = _normalise(scores, self.repetition, self.list_read(lengths))
        found, chosen = super().advance(scores, lengths)
        tokens = {(token.line, token.sample): token for token in found}
        for row, own, masked, length in zip(before, log_p, scores, lengths, strict=True):
            if not row.done and length >= len(row.request.prefix):
                self._write(row, own, masked, tokens.get((row.line, row.sample)), length)
        return found, chosen

    def _write(
        self, row: Row, log_p: Float[Tensor, "V"], masked: Float[Tensor, "V"], token: Token | None, length: int
    ) -> None:
        """Write down a step of a row; no `token` was chosen if none was allowed."""
        record, last = self._records[row.line], self._last.get((row.line, row.sample))
        if not record.steps or record.steps[-1].length <= length:
            record.begin(length + 1)
        banned, count = masked.isneginf(), min(_LISTED, len(log_p))
        ranked = log_p.masked_fill(banned, -torch.inf).argsort(descending=True, stable=True).tolist()
        listed = {*log_p.topk(count).indices.tolist(), *ranked[:count], *(() if token is None else [token.id])}
        for id in sorted(listed, key=lambda id: (-log_p[id].item(), id)):
            if log_p[id] == -math.inf:
                continue
            candidate = record.add(last, id, log_p[id].item(), sample=row.sample)
            if token is not None and id == token.id:
                self._last[row.line, row.sample] = candidate
                candidate.status = "finished" if id in self.ends else "kept"
                if candidate.status == "kept" and length + 1 == row.request.max_length:
                    candidate.status, candidate.reason = "finished", f"cut at max_length = {length + 1}"
            elif banned[id]:
                candidate.reason = _explain_ban(self.constraints, self.repetition, id, row.matches, row.read, length)
            elif self.options.sample:
                candidate.reason = _explain_draw(masked, self.options, id)
            else:
                candidate.reason = (
                    f"greedy search follows the most probable token: {ranked.index(id)} were more probable"
                )
        if token is None and last is not None:
            last.status, last.reason = "finished", "no token was allowed to follow"


def _normalise(
    scores: Float[Tensor, "R V"], repetition: Repetition | None, read: Sequence[Sequence[int]]
) -> Float[Tensor, "R V"]:
    """The log-probabilities before anything is banned."""
    log_p = scores.clone()
    if repetition is not None:
        repetition.penalise(log_p, read)
    return log_p - normalise(log_p)[0].unsqueeze(1)


def _explain_ban(
    constraints: Constraints,
    repetition: Repetition | None,
    token: int,
    matches: Matches | None,
    read: Sequence[int],
    length: int,
) -> str:
    reason = constraints.explain(token, matches, length)
    if reason is None and repetition is not None:
        reason = repetition.explain(token, read, () if matches is None else matches.list_wanted())
    assert reason is not None, "a token is banned for a reason"
    return reason


def _explain_draw(scores: Float[Tensor, "V"], options: SearchOptions, token: int) -> str:
    """Why a token that was allowed was not drawn."""
    p = (scores.cpu().double() / (1.0 if options.temperature is None else options.temperature)).softmax(-1).unsqueeze(0)
    if truncate(p, replace(options, top_p=None, min_p=None))[0, token] == 0:
        return f"not among the {options.top_k} most probable tokens (top_k)"
    if truncate(p, replace(options, min_p=None))[0, token] == 0:
        return f"more probable tokens already have the probability {options.top_p} together (top_p)"
    left = truncate(p, options)[0]
    if left[token] == 0:
        return f"less than {options.min_p} times as probable as the best token (min_p)"
    return f"not drawn: its chance was {left[token] / left.sum():.3g}"
