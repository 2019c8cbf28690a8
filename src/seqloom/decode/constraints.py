"""Lexical constraints: which tokens may come next, given what an answer must and must not contain, and its length.

An automaton follows each sequence (Knuth, Morris & Pratt 1977): its state is the number of the sequence's first tokens
that the text ends with. The last token of a forbidden sequence is banned when only that is missing. A required sequence
stays met once it is met; the end is banned until all are. When the tokens left are just enough for the missing
sequences, one after the other, only tokens that continue them are allowed, so that even an answer that is cut has them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.decode.options import Request, SearchOptions, Tokens
from seqloom.devices import send


class Constraints:
    """The constraints of all lines of a search."""

    def __init__(self, requests: Sequence[Request], options: SearchOptions, *, ends: Tokens, never: Tokens) -> None:
        """`never`: tokens that no answer may contain, such as padding."""
        self._min_length, self._ends = options.min_length, list(ends)
        self._end_places = torch.tensor(self._ends, dtype=torch.long)
        self._never = torch.tensor(never, dtype=torch.long) if never else None
        self._has_sequences = False
        self.add(requests)

    def add(self, requests: Sequence[Request]) -> None:
        """Let more lines come in."""
        self._has_sequences |= any(request.required or request.forbidden for request in requests)

    def mask(self, scores: Float[Tensor, "R V"], rows: Iterable["Matches | None"], lengths: Sequence[int]) -> None:
        """Set to −∞ the scores of tokens that may not follow the tokens of each row: so many, with these matches."""
        early = [row for row, length in enumerate(lengths) if length < self._min_length] if self._min_length else []
        if early and self._ends:
            if len(early) == len(scores):
                self._end_places = send(self._end_places, scores.device)
                scores.index_fill_(1, self._end_places, -torch.inf)
            else:
                places = torch.cartesian_prod(torch.tensor(early), torch.tensor(self._ends))
                scores[tuple(send(places, scores.device).T)] = -torch.inf
        if self._never is not None:
            self._never = send(self._never, scores.device)
            scores.index_fill_(1, self._never, -torch.inf)
        banned: list[tuple[int, int]] = []
        for row, (matches, length) in enumerate(zip(rows, lengths, strict=True) if self._has_sequences else ()):
            if matches is None:
                continue
            banned += [(row, token) for token in matches.list_banned()]
            if not matches.are_met():
                banned += [(row, end) for end in self._ends]
                allowed = matches.list_allowed(length)
                if allowed is not None:
                    places = send(torch.tensor(allowed), scores.device)
                    kept = scores[row, places]
                    scores[row] = -torch.inf
                    scores[row, places] = kept
        if banned:
            scores[tuple(send(torch.tensor(banned), scores.device).T)] = -torch.inf

    def explain(self, token: int, matches: "Matches | None", length: int) -> str | None:
        """Why `mask` bans a token after `length` tokens, in words; None if it does not."""
        if self._never is not None and token in self._never.tolist():
            return "banned: no answer may contain this token, which is special or was not seen in training"
        if token in self._ends and length < self._min_length:
            return f"banned: the end may not come before min_length = {self._min_length} tokens"
        if matches is None:
            return None
        if token in matches.list_banned():
            return "banned: it would complete a sequence that the answer must avoid"
        if not matches.are_met():
            if token in self._ends:
                return "banned: the end may not come before everything that is required"
            allowed = matches.list_allowed(length)
            if allowed is not None and token not in allowed:
                left = matches.max_length - length
                return f"banned: the {left} tokens left up to max_length are all needed for what is required"
        return None


class _Automaton:
    def __init__(self, sequence: Tokens) -> None:
        self.sequence, self.length = sequence, len(sequence)
        self.fallback = [0, 0]  # by n: the length of the longest proper prefix of the first n tokens that ends them
        for token in sequence[1:]:
            self.fallback.append(self.advance(self.fallback[-1], token, len(self.fallback) - 1))

    def advance(self, state: int, token: int, length: int | None = None) -> int:
        length = self.length if length is None else length
        while state and (state == length or self.sequence[state] != token):
            state = self.fallback[state]
        return state + (length > state and self.sequence[state] == token)


@dataclass(frozen=True, slots=True)
class Matches:
    """How much of each required or forbidden sequence the text of a row ends with."""

    max_length: int
    required: tuple[tuple[_Automaton, int], ...]
    """Each automaton with its state."""
    forbidden: tuple[tuple[_Automaton, int], ...]

    @classmethod
    def start(cls, request: Request) -> "Matches | None":
        """The matches of a line after its prefix; None if it has no constraints."""
        if not request.required and not request.forbidden:
            return None
        required, forbidden = (
            tuple((_Automaton(sequence), 0) for sequence in dict.fromkeys(sequences))
            for sequences in (request.required, request.forbidden)
        )
        matches = cls(request.max_length, required, forbidden)
        for token in request.prefix:
            matches = replace(matches, forbidden=matches.advance(token).forbidden)
        return matches

    def advance(self, token: int) -> "Matches":
        """The matches after one more token."""
        return Matches(
            self.max_length,
            tuple((a, state if state == a.length else a.advance(state, token)) for a, state in self.required),
            tuple((a, a.advance(state, token)) for a, state in self.forbidden),
        )

    def are_met(self) -> bool:
        """Whether the text contains all required sequences."""
        return all(state == a.length for a, state in self.required)

    def count(self) -> int:
        """How many required tokens the text contains: the bank of a beam (Post & Vilar 2018, §3)."""
        return sum(a.length for a, state in self.required if state == a.length) + self._begun

    def list_wanted(self) -> list[int]:
        """The tokens that continue a required sequence."""
        return [a.sequence[state] for a, state in self.required if state < a.length]

    def list_banned(self) -> list[int]:
        """The tokens that would complete a forbidden sequence."""
        return [a.sequence[-1] for a, state in self.forbidden if a.advance(state, a.sequence[-1]) == a.length]

    def list_allowed(self, length: int) -> list[int] | None:
        """The tokens after which there is still room for all required sequences; None if that is any token."""
        room = self.max_length - length
        if self._unmet < room:
            return None
        after = {token: self.advance(token) for a, _ in self.required for token in a.sequence}
        return sorted(token for token, matches in after.items() if matches._unmet - matches._begun < room)

    @property
    def _unmet(self) -> int:
        """The number of tokens in the required sequences that are not met."""
        return sum(a.length for a, state in self.required if state < a.length)

    @property
    def _begun(self) -> int:
        """The most tokens of any of these that the text ends with."""
        return max((state for a, state in self.required if state < a.length), default=0)
