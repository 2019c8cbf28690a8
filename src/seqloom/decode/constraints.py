"""Which tokens a line may take next: what it must contain, what it must not, and how long it has to be.

Each sequence is followed by the automaton of Knuth, Morris & Pratt 1977: its state is how many of the sequence's first
tokens the text ends with. A forbidden sequence bans its last token in its last state but one. A required one, once met,
stays met; until all are, the end is banned. Where the room that is left just suffices for what is still to be met, one
sequence after the other, only tokens that bring it closer are allowed: so an answer that is cut contains it, too.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.decode.options import Request, SearchOptions, Tokens


class Matches(NamedTuple):
    """How many first tokens of each sequence the text of a row ends with."""

    required: Tokens
    forbidden: Tokens


class Constraints:
    """Those of all lines of a search."""

    def __init__(self, requests: Sequence[Request], options: SearchOptions, *, end_id: int, never: Tokens) -> None:
        """`never`: tokens that are no part of any answer, such as padding."""
        self._min_length, self._end_id, self._requests = options.min_length, end_id, requests
        self._never = torch.tensor(never, dtype=torch.long) if never else None
        self.lines = [LineConstraints(r) if r.required or r.forbidden else None for r in requests]
        self._constrained = any(self.lines)

    def start(self, line: int) -> Matches | None:
        """What is matched after a line's prefix; None for a line without sequences."""
        constraints = self.lines[line]
        return None if constraints is None else constraints.start

    def advance(self, line: int, matches: Matches | None, token: int) -> Matches | None:
        """What is matched after one more token."""
        constraints = self.lines[line]
        return None if constraints is None or matches is None else constraints.advance(matches, token)

    def mask(self, scores: Float[Tensor, "R V"], rows: Iterable[tuple[int, Matches | None]], length: int) -> None:
        """Set to −∞ what may not follow the `length` tokens of each row, given as its line and its matches."""
        if length < self._min_length:
            scores[:, self._end_id] = -torch.inf
        if self._never is not None:
            scores.index_fill_(1, self._never.to(scores.device), -torch.inf)
        if not self._constrained:
            return
        banned: list[tuple[int, int]] = []
        for row, (line, matches) in enumerate(rows):
            constraints = self.lines[line]
            if constraints is None or matches is None:
                continue
            banned += [(row, token) for token in constraints.list_banned(matches)]
            if not constraints.are_met(matches):
                banned.append((row, self._end_id))
                allowed = constraints.list_allowed(matches, self._requests[line].max_length - length)
                if allowed is not None:
                    places = torch.tensor(allowed, device=scores.device)
                    kept = scores[row, places]
                    scores[row] = -torch.inf
                    scores[row, places] = kept
        if banned:
            scores[tuple(torch.tensor(banned, device=scores.device).T)] = -torch.inf


class LineConstraints:
    """Those of one line."""

    def __init__(self, request: Request) -> None:
        self._required = [_Automaton(sequence) for sequence in dict.fromkeys(request.required)]
        self._forbidden = [_Automaton(sequence) for sequence in dict.fromkeys(request.forbidden)]
        self._relevant = sorted({token for automaton in self._required for token in automaton.sequence})
        self.start = Matches((0,) * len(self._required), (0,) * len(self._forbidden))
        for token in request.prefix:
            self.start = Matches(self.start.required, self.advance(self.start, token).forbidden)

    def advance(self, matches: Matches, token: int) -> Matches:
        """One more token."""
        return Matches(
            tuple(state if state == a.length else a.advance(state, token) for a, state in self._pairs(matches)),
            tuple(a.advance(state, token) for a, state in zip(self._forbidden, matches.forbidden, strict=True)),
        )

    def are_met(self, matches: Matches) -> bool:
        """Whether nothing is missing."""
        return all(a.length == state for a, state in self._pairs(matches))

    def count(self, matches: Matches) -> int:
        """How many tokens of what is required are there: the bank of a beam (Post & Vilar 2018, §3)."""
        met = sum(a.length for a, state in self._pairs(matches) if state == a.length)
        return met + max(self._list_begun(matches), default=0)

    def list_wanted(self, matches: Matches) -> list[int]:
        """The tokens that bring what is required closer."""
        return [a.sequence[state] for a, state in self._pairs(matches) if state < a.length]

    def list_banned(self, matches: Matches) -> list[int]:
        """The tokens that would complete what is forbidden."""
        pairs = zip(self._forbidden, matches.forbidden, strict=True)
        return [a.sequence[-1] for a, state in pairs if a.advance(state, a.sequence[-1]) == a.length]

    def list_allowed(self, matches: Matches, room: int) -> list[int] | None:
        """The tokens after which `room` − 1 more suffice for all that is required; None if it is all of them."""
        if self._count_unmet(matches) < room:
            return None
        return [token for token in self._relevant if self._count_missing(self.advance(matches, token)) < room]

    def _pairs(self, matches: Matches) -> "Iterable[tuple[_Automaton, int]]":
        return zip(self._required, matches.required, strict=True)

    def _list_begun(self, matches: Matches) -> list[int]:
        return [state for a, state in self._pairs(matches) if state < a.length]

    def _count_unmet(self, matches: Matches) -> int:
        return sum(a.length for a, state in self._pairs(matches) if state < a.length)

    def _count_missing(self, matches: Matches) -> int:
        return self._count_unmet(matches) - max(self._list_begun(matches), default=0)


class _Automaton:
    def __init__(self, sequence: Tokens) -> None:
        self.sequence, self.length = sequence, len(sequence)
        self.fallback = [0, 0]  # the longest proper prefix of the first n tokens that is also a suffix of them
        for token in sequence[1:]:
            self.fallback.append(self.advance(self.fallback[-1], token, len(self.fallback) - 1))

    def advance(self, state: int, token: int, length: int | None = None) -> int:
        length = self.length if length is None else length
        while state and (state == length or self.sequence[state] != token):
            state = self.fallback[state]
        return state + (length > state and self.sequence[state] == token)
