"""The largest of many scores, in two rounds.

The n largest lie in the n blocks with the largest maxima. To find a maximum is one fast pass, to sort is not; so only
those blocks are sorted. Small tables are sorted at once.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

_SMALL = 100_000  # scores, for which one call costs less than five


def find_top(scores: Float[Tensor, "R V"], count: int) -> tuple[Float[Tensor, "R N"], Int[Tensor, "R N"]]:
    """The `count` largest of each row and where they stand, largest first."""
    size = math.isqrt(scores.shape[1])
    blocks = scores.shape[1] // size
    if scores.numel() < _SMALL or blocks < 4 * count:
        values, places = scores.topk(count)
        return values, places
    body = scores[:, : blocks * size].unflatten(1, (blocks, size))
    chosen = body.amax(-1).topk(count).indices
    inside = body.gather(1, chosen.unsqueeze(2).expand(-1, -1, size)).flatten(1)
    values, index = torch.cat([inside, scores[:, blocks * size :]], dim=1).topk(count)
    block, offset = index // size, index % size
    first = torch.where(block < count, chosen.gather(1, block.clamp(max=count - 1)), block + blocks - count)
    return values, first * size + offset
