"""The same attention at a lower cost: packed sequences in one kernel, windows and long texts in blocks."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from seqloom.native import attention as native
from seqloom.native.library import serves
from seqloom.nn.attention import SCALED_DOT, Score, attend
from seqloom.nn.packing import Packing

_LONGEST = 256  # tokens: what a head needs for a longer sequence does not fit into a core's cache
_BLOCK = 128  # queries of a long sequence whose scores are formed at a time
_LONG = 1024  # tokens: up to here, all scores at once are faster
Heads = Float[Tensor, "B H T K"]


def can_attend(rows: Tensor, *packings: Packing) -> bool:
    """Whether `attend_packed` can compute with rows of these sequences."""
    return serves(rows, mixed=True) and all(packing.counts.max(initial=0) <= _LONGEST for packing in packings)


def attend_packed(
    query: Float[Tensor, "N A"],
    memory: Float[Tensor, "M B"] | None,
    target: Packing,
    source: Packing,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    *,
    sees: str = "everything",
    normalised: bool = False,
    rotary: tuple[Tensor, Tensor] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "N D"]:
    """The concatenated outputs of the heads for each row of queries: native/attention.c.

    PyTorch's attention needs rectangles, rotated copies of queries and keys and, for short sequences, all weights in
    memory, kept for the gradient. Here a core takes one sequence and one head at a time, reads the packed rows as they
    are, and computes the weights again for the gradient. The numbers are the same up to rounding.

    `memory` holds the keys and values, a row for each source token; without it they follow the queries in `query`.
    `sees` is everything, past or future; `rotary` holds the cosines and sines of the positions.
    """
    seed = int(torch.randint(2**62, ())) if dropout else 0
    spans = (target.starts, target.counts, source.starts, source.counts)
    plan = native.AttentionPlan(*spans, num_heads, num_kv_heads, head_dim, sees, normalised, rotary, dropout, seed)
    return _AttendPacked.apply(query, memory, plan)  # type: ignore[no-untyped-call]


class _AttendPacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, memory: Tensor | None, plan: native.AttentionPlan) -> Tensor:
        query, memory = query.contiguous(), None if memory is None else memory.contiguous()
        out, normalisers = native.attend(query, memory, plan)
        ctx.plan = plan
        ctx.save_for_backward(query, memory, normalisers)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, memory, normalisers = ctx.saved_tensors
        return *native.differentiate(query, memory, normalisers, grad, ctx.plan), None


def attend_scored(
    query: Heads,
    key: Heads,
    value: Heads,
    mask: Bool[Tensor, "B T"] | None,
    *,
    causal: bool,
    score: Score = SCALED_DOT,
    score_bias: Callable[[Tensor], Tensor] | None = None,
    dropout: float = 0.0,
) -> Heads:
    """Each position attends to all (causal: to itself and those before it), in memory that is linear in their number.

    Neither all scores of a long sequence nor what is added to them are ever held: queries go in blocks, and for the
    gradient the weights of a block are computed again. What is added to a score depends on the distance i − j only, so
    2n − 1 numbers say it all. Write them from the largest distance to the smallest, with −∞ for keys that a causal
    query must not see. Then row i is the window of this strip that begins at n − 1 − i. From the last query of a block
    to its first these windows move by one, so the block's matrix is a view of the strip, not a copy:

        strip_t = bias(n − 1 − t)          bias_ij = strip_{n−1−i+j}
    """
    length = query.shape[2]
    allowed = None if mask is None or causal else mask[:, None, None, :]  # padding comes last: no causal query sees it
    if length <= _LONG:
        bias = None if score_bias is None else score_bias(find_distances(length, length, 0, query.device))
        return attend(query, key, value, allowed, score=score, causal=causal, bias=bias, dropout=dropout)
    strip = _make_strip(query, score_bias, causal=causal)

    def attend_block(first: int, query: Tensor, key: Tensor, value: Tensor, strip: Tensor | None) -> Tensor:
        """From the last query to the first."""
        size, seen = query.shape[2], key.shape[2]
        window = None if strip is None else strip.narrow(-1, length - first - size, size + seen - 1).unfold(-1, seen, 1)
        return attend(query.flip(2), key, value, allowed, score=score, bias=window, dropout=dropout).flip(2)

    parts = []
    for first in range(0, length, _BLOCK):
        rows = query[:, :, first : first + _BLOCK]
        seen = first + rows.shape[2] if causal else length
        inputs = first, rows, key[:, :, :seen], value[:, :, :seen], strip
        again = torch.is_grad_enabled()
        parts.append(checkpoint(attend_block, *inputs, use_reentrant=False) if again else attend_block(*inputs))
    return torch.cat(parts, dim=2)


def _make_strip(
    query: Heads, score_bias: Callable[[Tensor], Tensor] | None, *, causal: bool
) -> Float[Tensor, "1 #H S"] | None:
    """What is added to the score at each distance, from n − 1 down to 1 − n; with a dimension for the batch, without
    which PyTorch takes no fused kernel.
    """
    length, device = query.shape[2], query.device
    if score_bias is None:
        if not causal:
            return None
        strip = query.new_zeros(1, 1, length)
    else:
        strip = score_bias(torch.arange(length - 1, -1 if causal else -length, -1, device=device)[None, None]).squeeze(
            -2
        )
    # Contiguous, because a fused kernel would copy a block whose rows are not.
    return F.pad(strip, (0, length - 1), value=-torch.inf) if causal else strip.contiguous()


def attend_window(
    query: Heads,
    key: Heads,
    value: Heads,
    mask: Bool[Tensor, "B T"] | None,
    *,
    window: int,
    causal: bool,
    score: Score = SCALED_DOT,
    score_bias: Callable[[Tensor], Tensor] | None = None,
    dropout: float = 0.0,
) -> Heads:
    """Each position attends to a window of r positions, at cost O(r·n·d), not n²·d (Beltagy et al. 2020, §3.1).

    The sequence is cut into blocks of r queries. A block needs its own keys and those within reach on either side, 2r
    in all (causal: r − 1 before it), so the work is n/r blocks of r × 2r scores: linear in n. The numbers are the same
    as those of `attend` under `window_mask`. `score_bias` gives what each head adds to the score at a distance.
    """
    batch, heads, length, _ = query.shape
    before, after = window_reach(window, causal=causal)
    if length <= before + after + window:  # one block would cover nearly everything
        allowed = window_mask(length, window, causal=causal, device=query.device)
        if mask is not None:
            allowed = allowed & mask[:, None, None, :]
        bias = None if score_bias is None else score_bias(find_distances(length, length, 0, query.device))
        return attend(query, key, value, allowed, score=score, bias=bias, dropout=dropout)
    blocks = -(-length // window)
    reach = window + before + after
    extra = blocks * window - length

    def cut(x: Tensor) -> Tensor:  # (B, H, T, K) -> (B·blocks, H, reach, K)
        x = F.pad(x, (0, 0, before, after + extra)).unfold(2, reach, window)  # (B, H, blocks, K, reach)
        return x.permute(0, 2, 1, 4, 3).reshape(batch * blocks, heads, reach, -1)

    queries = F.pad(query, (0, 0, 0, extra)).unflatten(2, (blocks, window)).transpose(1, 2).flatten(0, 1)
    distance = find_distances(window, reach, before, query.device)
    near = (distance >= -after) & (distance <= before)  # (window, reach)
    real = torch.ones(1, length, dtype=torch.bool, device=query.device) if mask is None else mask
    real = F.pad(real, (before, after + extra)).unfold(1, reach, window)  # (B or 1, blocks, reach)
    allowed = (near & real.unsqueeze(2)).expand(batch, -1, -1, -1).flatten(0, 1).unsqueeze(1)  # (B·blocks, 1, w, reach)
    bias = None if score_bias is None else score_bias(distance)
    out = attend(queries, cut(key), cut(value), allowed, score=score, bias=bias, dropout=dropout)
    out = out.view(batch, blocks, heads, window, -1).transpose(1, 2).flatten(2, 3)
    return out[:, :, :length]


def window_mask(length: int, window: int, *, causal: bool, device: torch.device | None = None) -> Bool[Tensor, "T T"]:
    """Each position sees `window` positions: if causal, itself and those before it, else about half on each side."""
    distance = find_distances(length, length, 0, device)
    before, after = window_reach(window, causal=causal)
    return (distance <= before) & (distance >= -after)


def window_reach(window: int, *, causal: bool) -> tuple[int, int]:
    """How far a position sees back and ahead; `window` counts the position itself."""
    return (window - 1, 0) if causal else (window // 2, (window - 1) // 2)


def find_distances(num_queries: int, num_keys: int, offset: int, device: torch.device | None = None) -> Tensor:
    """How far each key is behind each query; query 0 has the position of key `offset`."""
    positions = torch.arange(num_queries, device=device).unsqueeze(-1) + offset
    return positions - torch.arange(num_keys, device=device)
