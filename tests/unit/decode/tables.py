"""A model that can be enumerated: the scores after each history are random, but the same whenever it comes up."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqloom.decode.options import Request, penalise_length
from seqloom.types import DecodeState, Hypothesis

END, START = 0, 1


@dataclass(frozen=True)
class History(DecodeState):
    """All that was read."""

    tokens: Tensor


class TableModel:
    """log P(token | history) from a hash of the history."""

    def __init__(self, seed: int, vocab_size: int, spread: float = 2.0) -> None:
        self.seed, self.vocab_size, self.spread = seed, vocab_size, spread

    def start(self, batch_size: int) -> History:
        return History((0,) * batch_size, torch.zeros(batch_size, 0, dtype=torch.long))

    def score(self, history: Sequence[int]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, *history)) % 2**31)
        return (torch.randn(self.vocab_size, generator=generator, dtype=torch.float64) * self.spread).log_softmax(0)

    def step(self, ids: Tensor, state: History) -> tuple[Tensor, History]:
        tokens = torch.cat([state.tokens, ids], dim=1)
        shift = 3.0  # logits differ from log-probabilities
        scores = torch.stack([self.score(row) + shift for row in tokens.tolist()])
        return scores, replace(state, positions=(tokens.shape[1],) * len(state.positions), tokens=tokens)

    def enumerate(
        self, request: Request, *, alpha: float, min_length: int = 0, ends: tuple[int, ...] = (END,)
    ) -> list[Hypothesis]:
        """Every answer there is, best first."""
        answers = self._answers(request, min_length, ends)
        found = [self._judge(request, ids, end, alpha) for ids, done in answers for end in (ends if done else (None,))]
        return sorted(found, key=lambda hypothesis: hypothesis.score, reverse=True)

    def _answers(
        self, request: Request, min_length: int, ends: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], bool]]:
        inner = [token for token in range(self.vocab_size) if token not in ends]
        room = request.max_length - len(request.prefix)
        for length in range(room + 1):
            for ids in itertools.product(inner, repeat=length):
                finished = length < room
                too_short = finished and len(request.prefix) + length < min_length
                if not too_short and all(contains(ids, wanted) for wanted in request.required):
                    whole = request.prefix + ids
                    places = range(len(request.prefix) + 1, len(whole) + 1)
                    if not any(whole[:place][-len(f) :] == f for f in request.forbidden for place in places):
                        yield ids, finished

    def _judge(self, request: Request, ids: tuple[int, ...], end: int | None, alpha: float) -> Hypothesis:
        history, scores = [request.start, *request.prefix], []
        for token in ids if end is None else (*ids, end):
            scores.append(float(self.score(history)[token]))
            history.append(token)
        score = penalise_length(sum(scores), len(scores), alpha)
        return Hypothesis(request.prefix + ids, score, tuple(scores), end is not None)


def contains(whole: tuple[int, ...], part: tuple[int, ...]) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))
