"""Greedy search over a step function that is written out by hand."""

from dataclasses import dataclass

import torch

from weft.decode.greedy import greedy
from weft.types import DecodeState

END = 0


@dataclass(frozen=True)
class Countdown(DecodeState):
    """A model that counts down from a number of its own, and then ends."""

    left: torch.Tensor


def step(tokens: torch.Tensor, state: Countdown) -> tuple[torch.Tensor, Countdown]:
    scores = torch.nn.functional.one_hot(state.left.clamp(min=0), 10).float().unsqueeze(1)
    return scores, Countdown(state.position + 1, state.left - 1)


def test_rows_end_by_themselves_and_leave_the_batch() -> None:
    state = Countdown(0, torch.tensor([3, 0, 1, 5]))
    assert greedy(step, state, torch.full((4,), 9), end_id=END, max_length=20) == [[3, 2, 1], [], [1], [5, 4, 3, 2, 1]]


def test_the_longest_length_is_kept() -> None:
    assert greedy(step, Countdown(0, torch.tensor([8])), torch.tensor([9]), end_id=END, max_length=3) == [[8, 7, 6]]
