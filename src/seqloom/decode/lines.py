"""Lines that are searched together: how they start, and how they leave."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.decode.options import Request
from seqloom.types import DecodeState

Step = Callable[[Int[Tensor, "R T"], DecodeState], tuple[Float[Tensor, "R V"], DecodeState]]
"""New tokens of each row and a state in; scores for the token after the last, and the new state, out.

The scores are logits, or anything that differs from log P by one number a row.
"""

NOT_NUMBERS = (
    "the network's scores are not numbers (NaN): its weights hold some that are not, or grew too large for their "
    "precision; see which of model.network.named_parameters() are not finite"
)
_SHARE = 8


def read_prefixes(
    step: Step, state: DecodeState, requests: Sequence[Request]
) -> tuple[Float[Tensor, "B V"], DecodeState]:
    """Read at once as much of the prefixes as all lines have; what is left of longer ones is read token by token."""
    common = min(len(request.prefix) for request in requests)
    rows = [[request.start, *request.prefix[:common]] for request in requests]
    return step(torch.tensor(rows, device=state.device), state)


def list_staying(done: Sequence[bool]) -> list[int] | None:
    """The places of the lines that are not done, if it is time for the others to leave.

    Leaving costs a copy of all that is kept for those who stay. So lines leave together, an eighth of them or more.
    """
    staying = [place for place, is_done in enumerate(done) if not is_done]
    return staying if (len(done) - len(staying)) * _SHARE >= len(done) else None
