"""Sequences an answer must contain, and sequences it must not.

Each sequence is followed by the automaton of Knuth, Morris & Pratt 1977: its state is how many of the sequence's first
tokens the text ends with. A forbidden sequence bans its last token in its last state but one. A required one, once met,
stays met; until all are, the end is banned. Where the room that is left just suffices for what is still to be met, one
sequence after the other, only tokens that bring it closer are allowed: so an answer that is cut contains it, too.
"""

from collections.abc import Iterable
from typing import NamedTuple

from seqloom.decode.options import Request, Tokens


class Progress(NamedTuple):
    """How far the text of one beam is with each sequence."""

    required: Tokens
    forbidden: Tokens


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


class Constraints:
    """Those of one line."""

    def __init__(self, request: Request) -> None:
        self._required = [_Automaton(sequence) for sequence in dict.fromkeys(request.required)]
        self._forbidden = [_Automaton(sequence) for sequence in dict.fromkeys(request.forbidden)]
        self._relevant = sorted({token for automaton in self._required for token in automaton.sequence})
        self.start = Progress((0,) * len(self._required), (0,) * len(self._forbidden))
        for token in request.prefix:
            self.start = Progress(self.start.required, self.advance(self.start, token).forbidden)

    def advance(self, progress: Progress, token: int) -> Progress:
        """One more token."""
        return Progress(
            tuple(
                state if state == automaton.length else automaton.advance(state, token)
                for automaton, state in zip(self._required, progress.required, strict=True)
            ),
            tuple(a.advance(state, token) for a, state in zip(self._forbidden, progress.forbidden, strict=True)),
        )

    def is_met(self, progress: Progress) -> bool:
        """Whether nothing is missing."""
        return all(automaton.length == state for automaton, state in self._pairs(progress))

    def count(self, progress: Progress) -> int:
        """How many tokens of what is required are there: the bank of a beam (Post & Vilar 2018, §3)."""
        met, _, begun = self._account(progress)
        return met + begun

    def list_wanted(self, progress: Progress) -> list[int]:
        """The tokens that bring what is required closer."""
        return [a.sequence[state] for a, state in self._pairs(progress) if state < a.length]

    def list_banned(self, progress: Progress) -> list[int]:
        """The tokens that would complete what is forbidden."""
        pairs = zip(self._forbidden, progress.forbidden, strict=True)
        return [a.sequence[-1] for a, state in pairs if a.advance(state, a.sequence[-1]) == a.length]

    def list_allowed(self, progress: Progress, room: int) -> list[int] | None:
        """The tokens after which `room` − 1 more suffice for all that is required; None if it is all of them."""
        if self._account(progress)[1] < room:
            return None
        return [token for token in self._relevant if self._count_missing(self.advance(progress, token)) < room]

    def _pairs(self, progress: Progress) -> Iterable[tuple[_Automaton, int]]:
        return zip(self._required, progress.required, strict=True)

    def _account(self, progress: Progress) -> tuple[int, int, int]:
        """Tokens of sequences that are met, of those that are not, and the most that any of these has."""
        met = sum(a.length for a, state in self._pairs(progress) if state == a.length)
        unmet = sum(a.length for a, state in self._pairs(progress) if state < a.length)
        return met, unmet, max((state for a, state in self._pairs(progress) if state < a.length), default=0)

    def _count_missing(self, progress: Progress) -> int:
        _, unmet, begun = self._account(progress)
        return unmet - begun
