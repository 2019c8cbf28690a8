"""The most probable token at each step."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from weft.types import DecodeState

Step = Callable[[Int[Tensor, "B T"], DecodeState], tuple[Float[Tensor, "B T V"], DecodeState]]
"""New tokens and a state in; scores for the token after each, and the new state, out."""


@torch.inference_mode()
def greedy(step: Step, state: DecodeState, start: Int[Tensor, "B"], *, end_id: int, max_length: int) -> list[list[int]]:
    """The tokens of each row after its `start`, up to and without `end_id`. Finished rows leave the batch."""
    rows: list[list[int]] = [[] for _ in start]
    alive = torch.arange(len(start), device=start.device)
    tokens = start.unsqueeze(1)
    for _ in range(max_length):
        scores, state = step(tokens, state)
        chosen = scores[:, -1].argmax(-1)
        going = (chosen != end_id).nonzero().squeeze(1)
        if len(going) < len(alive):
            alive, chosen, state = alive[going], chosen[going], state.select(going)
        if not len(alive):
            break
        for row, token in zip(alive.tolist(), chosen.tolist(), strict=True):
            rows[row].append(token)
        tokens = chosen.unsqueeze(1)
    return rows
