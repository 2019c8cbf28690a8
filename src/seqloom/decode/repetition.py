"""Against repetition: a penalty on tokens that were read before, and no sequence of n tokens twice.

Keskar et al. 2019, §4.1, divide the scores of such tokens before the softmax. A negative score is multiplied
instead, as dividing it would make the token likelier (Hugging Face's RepetitionPenaltyLogitsProcessor):

    p(i) ∝ exp(s_i / θ) if s_i > 0, exp(s_i θ) if s_i < 0, for each token i that was read;  exp(s_i) for the others

All log-probabilities of a search are then those of this distribution. Paulus et al. 2018, §2.5, ban a token that would
complete n tokens that occurred before. What was read begins with the start and the prefix, or the prompt.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.decode.options import SearchOptions, Tokens
from seqloom.devices import send


class Repetition:
    """The two options for all rows of a search; a row is given by all tokens that were read, () if it is exempt."""

    def __init__(self, options: SearchOptions, ends: Tokens) -> None:
        self._penalty, self._size, self._ends = options.repetition_penalty, options.no_repeat_ngram, ends

    def penalise(self, scores: Float[Tensor, "R V"], rows: Sequence[Sequence[int]]) -> None:
        """Change the scores, which must be logits, of tokens that each row has read."""
        places = [(row, token) for row, read in enumerate(rows) for token in {*read}] if self._penalty != 1.0 else []
        if places:
            index = tuple(send(torch.tensor(places), scores.device).T)
            found = scores[index]
            scores[index] = torch.where(found < 0, found * self._penalty, found / self._penalty)

    def ban(
        self, scores: Float[Tensor, "R V"], rows: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]] = ()
    ) -> None:
        """Set to −∞ what would repeat n tokens, except the end and each row's `wanted` tokens."""
        places = [
            (row, token)
            for row, read in enumerate(rows if self._size else ())
            for token in self._list_repeating(read)
            if token not in self._ends and not (wanted and token in wanted[row])
        ]
        if places:
            scores[tuple(send(torch.tensor(places), scores.device).T)] = -torch.inf

    def explain(self, token: int, read: Sequence[int], wanted: Sequence[int] = ()) -> str | None:
        """Why `ban` bans a token after what was read, in words; None if it does not."""
        if not self._size or token in self._ends or token in wanted or token not in self._list_repeating(read):
            return None
        return f"banned: it would repeat {self._size} tokens that were read before (no_repeat_ngram = {self._size})"

    def _list_repeating(self, read: Sequence[int]) -> set[int]:
        """The tokens that followed the last n − 1 tokens before."""
        before = self._size - 1
        last = tuple(read[len(read) - before :])
        return {read[at] for at in range(before, len(read)) if tuple(read[at - before : at]) == last}
