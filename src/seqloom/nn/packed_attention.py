"""Attention within packed sequences, without laying anything out: native/attention.c.

PyTorch's attention wants rectangles, rotated copies of queries and keys and, where sequences are short, all weights in
memory, kept for the gradient. Here a core takes a sequence and a head at a time, from the rows they lie in, and finds
the weights again for the gradient. Where the kernels do not serve, PyTorch does it; the numbers are the same up to
rounding.
"""

from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.native import serves
from seqloom.native.attention import AttentionPlan, attend, differentiate
from seqloom.nn.packing import Packing

_LONGEST = 256  # tokens: what a head needs of a longer sequence does not fit into the cache of a core
Looks = Literal["all", "past", "future"]


class Heads(NamedTuple):
    """What attention does besides mixing."""

    number: int
    groups: int
    """Key-value heads, each of which serves as many heads as the others."""
    dim: int
    looks: Looks = "all"
    normalised: bool = False
    """Whether queries and keys are."""
    turns: tuple[Tensor, Tensor] | None = None
    """Cosines and sines of rotary positions: (positions, dim / 2)."""
    dropout: float = 0.0


def can_attend(rows: Tensor, *packings: Packing) -> bool:
    """Whether it is done here."""
    return serves(rows) and all(packing.counts.max(initial=0) <= _LONGEST for packing in packings)


def attend_packed(
    query: Float[Tensor, "N A"],
    memory: Float[Tensor, "M B"] | None,
    target: Packing,
    source: Packing,
    heads: Heads,
) -> Float[Tensor, "N D"]:
    """What the heads of each row of queries mix, side by side.

    The keys and values are in `memory`, which has a row a token of the source; without one they follow the queries.
    """
    out: Tensor = _Attend.apply(query, memory, target, source, heads)  # type: ignore[no-untyped-call]
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, memory: Tensor | None, target: Packing, source: Packing, heads: Heads
    ) -> Tensor:
        query, memory = query.contiguous(), None if memory is None else memory.contiguous()
        seed = int(torch.randint(2**62, ())) if heads.dropout else 0
        ctx.plan = AttentionPlan(
            *(target.starts, target.counts, source.starts, source.counts),
            *(heads.number, heads.groups, heads.dim, "everything" if heads.looks == "all" else heads.looks),
            *(heads.normalised, heads.turns, heads.dropout, seed),
        )
        out, normalisers = attend(query, memory, ctx.plan)
        ctx.save_for_backward(query, memory, normalisers)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, memory, normalisers = ctx.saved_tensors
        return *differentiate(query, memory, normalisers, grad, ctx.plan), None, None, None
