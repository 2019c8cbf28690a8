"""Restricted self-attention: each position looks at a neighbourhood of r, at cost O(r·n·d), not n²·d.

The sequence is cut into blocks of r queries. A block needs its own keys and those within reach on either side, 2r in
all (causal: r − 1 before it), so the work is n/r blocks of r × 2r scores: linear in n. Nothing n × n is ever formed.
Blocks as in Beltagy et al. 2020 (Longformer), §3.1.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from seqloom.nn.attention import attend
from seqloom.nn.masks import window_mask, window_reach

Heads = Float[Tensor, "B H T K"]


def windowed_attend(
    query: Heads,
    key: Heads,
    value: Heads,
    mask: Bool[Tensor, "B T"] | None,
    *,
    window: int,
    causal: bool,
    bias: Callable[[Tensor], Tensor | None] | None = None,
    dropout: float = 0.0,
) -> Heads:
    """Attend within the window; the same numbers as `attend` under `window_mask`, where those fit in memory.

    `bias` gives what is added to the scores, by how far a key lies behind its query.
    """
    batch, heads, length, _ = query.shape
    before, after = window_reach(window, causal=causal)
    if length <= before + after + window:  # one block would cover nearly everything
        allowed = window_mask(length, window, causal=causal, device=query.device)
        if mask is not None:
            allowed = allowed & mask[:, None, None, :]
        added = None if bias is None else bias(_distances(length, length, 0, query.device))
        return attend(query, key, value, allowed, bias=added, dropout=dropout)
    blocks = -(-length // window)
    reach = window + before + after
    extra = blocks * window - length

    def lay_out(x: Tensor) -> Tensor:  # (B, H, T, K) -> (B·blocks, H, reach, K)
        x = F.pad(x, (0, 0, before, after + extra)).unfold(2, reach, window)  # (B, H, blocks, K, reach)
        return x.permute(0, 2, 1, 4, 3).reshape(batch * blocks, heads, reach, -1)

    queries = F.pad(query, (0, 0, 0, extra)).unflatten(2, (blocks, window)).transpose(1, 2).flatten(0, 1)
    distance = _distances(window, reach, before, query.device)
    near = (distance >= -after) & (distance <= before)  # (window, reach)
    real = torch.ones(1, length, dtype=torch.bool, device=query.device) if mask is None else mask
    real = F.pad(real, (before, after + extra)).unfold(1, reach, window)  # (B or 1, blocks, reach)
    allowed = (near & real.unsqueeze(2)).expand(batch, -1, -1, -1).flatten(0, 1).unsqueeze(1)  # (B·blocks, 1, w, reach)
    added = None if bias is None else bias(distance)
    out = attend(queries, lay_out(key), lay_out(value), allowed, bias=added, dropout=dropout)
    out = out.view(batch, blocks, heads, window, -1).transpose(1, 2).flatten(2, 3)
    return out[:, :, :length]


def _distances(num_queries: int, num_keys: int, offset: int, device: torch.device) -> Tensor:
    """How far each key lies behind each query, where query 0 stands at key `offset`."""
    places = torch.arange(num_queries, device=device).unsqueeze(-1) + offset
    return places - torch.arange(num_keys, device=device)
