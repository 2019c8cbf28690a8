"""What a search may not choose: the end too early, what is no answer at all, and what constraints rule out."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.decode.constraints import Constraints, Progress
from seqloom.decode.options import Request, SearchOptions


class Guide:
    """Of all lines of a search."""

    def __init__(self, requests: Sequence[Request], options: SearchOptions, *, end_id: int) -> None:
        self.min_length, self.end_id = options.min_length, end_id
        self._never = torch.tensor(options.never, dtype=torch.long) if options.never else None
        self.requests = requests
        self.constraints = [Constraints(r) if r.required or r.forbidden else None for r in requests]
        self._constrained = any(self.constraints)

    def start(self, line: int) -> Progress | None:
        """Where a line's constraints stand after its prefix."""
        constraints = self.constraints[line]
        return None if constraints is None else constraints.start

    def advance(self, line: int, progress: Progress | None, token: int) -> Progress | None:
        """Where they stand after one more token."""
        constraints = self.constraints[line]
        return None if constraints is None or progress is None else constraints.advance(progress, token)

    def advance_beams(
        self, line: int, progress: list[Progress | None], origins: list[int], tokens: list[int]
    ) -> list[Progress | None]:
        """The same of each token that was chosen, which goes on from a beam of the line."""
        if self.constraints[line] is None:
            return [None] * len(tokens)
        return [self.advance(line, progress[beam], token) for beam, token in zip(origins, tokens, strict=True)]

    def block(self, scores: Float[Tensor, "R V"], rows: Iterable[tuple[int, Progress | None]], length: int) -> None:
        """Set to −∞ what may not follow the `length` tokens of each row, given as its line and progress."""
        if length < self.min_length:
            scores[:, self.end_id] = -torch.inf
        if self._never is not None:
            scores.index_fill_(1, self._never.to(scores.device), -torch.inf)
        if not self._constrained:
            return
        blocked: list[tuple[int, int]] = []
        for row, (line, progress) in enumerate(rows):
            constraints = self.constraints[line]
            if constraints is None or progress is None:
                continue
            blocked += [(row, token) for token in constraints.list_banned(progress)]
            if not constraints.is_met(progress):
                blocked.append((row, self.end_id))
                self._confine(scores[row], constraints.list_allowed(progress, self.requests[line].max_length - length))
        if blocked:
            scores[tuple(torch.tensor(blocked, device=scores.device).T)] = -torch.inf

    @staticmethod
    def _confine(scores: Float[Tensor, "V"], allowed: list[int] | None) -> None:
        if allowed is not None:
            places = torch.tensor(allowed, device=scores.device)
            kept = scores[places]
            scores.fill_(-torch.inf)
            scores[places] = kept
