"""Attention within packed sequences, without laying anything out: packed_attention.c.

PyTorch's attention wants rectangles, turned copies of queries and keys and, where sequences are short, all weights in
memory, kept for the gradient. Here a core takes a sequence and a head at a time, from the rows they lie in, and finds
the weights again for the gradient. Where there is no C compiler, or attention is of a kind that packed_attention.c does
not know, PyTorch does it; the numbers are the same up to rounding.
"""

import ctypes
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.nn.native import load_library
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


class _Attention(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("sequences", "heads", "groups", "dim", "looks", "normalised")),
        *((name, ctypes.c_int) for name in ("longest_query", "longest_key")),
        *((name, ctypes.c_void_p) for name in ("query_starts", "query_counts", "key_starts", "key_counts")),
        *((name, ctypes.c_void_p) for name in ("query", "key", "value")),
        *((name, ctypes.c_int64) for name in ("query_width", "key_width")),
        *((name, ctypes.c_void_p) for name in ("cosines", "sines")),
        *((name, ctypes.c_float) for name in ("scale", "rate")),
        ("seed", ctypes.c_uint64),
    )


def can_attend(rows: Tensor, *packings: Packing) -> bool:
    """Whether it is done here."""
    return (
        rows.dtype == torch.float32
        and rows.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and all(packing.counts.max(initial=0) <= _LONGEST for packing in packings)
        and _load() is not None
    )


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
        ctx.plan = target, source, heads, seed
        out = query.new_empty(len(query), heads.number * heads.dim)
        normalisers = query.new_zeros(len(query), heads.number)
        given = _describe(query, memory, *ctx.plan)
        library = _load()
        assert library is not None
        library.attend(ctypes.byref(given), out.data_ptr(), normalisers.data_ptr())
        ctx.save_for_backward(query, memory, normalisers)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, memory, normalisers = ctx.saved_tensors
        heads = ctx.plan[2]
        given, grad = _describe(query, memory, *ctx.plan), grad.contiguous()
        changes = torch.empty_like(query), None if memory is None else torch.empty_like(memory)
        places = _find_parts(*changes, heads)
        library = _load()
        assert library is not None
        library.differentiate(ctypes.byref(given), normalisers.data_ptr(), grad.data_ptr(), *places)
        return *changes, None, None, None


def _describe(
    query: Tensor, memory: Tensor | None, target: Packing, source: Packing, heads: Heads, seed: int
) -> _Attention:
    counts = (target.starts, target.counts, source.starts, source.counts)
    return _Attention(
        len(target.counts), heads.number, heads.groups, heads.dim,
        ("all", "past", "future").index(heads.looks), heads.normalised,
        int(target.counts.max(initial=0)), int(source.counts.max(initial=0)),
        *(array.ctypes.data for array in counts),
        *_find_parts(query, memory, heads),
        query.shape[1], (query if memory is None else memory).shape[1],
        *((None, None) if heads.turns is None else (t.data_ptr() for t in heads.turns)),
        heads.dim**-0.5, heads.dropout, seed,
    )  # fmt: skip


def _find_parts(query: Tensor, memory: Tensor | None, heads: Heads) -> tuple[int, int, int]:
    """Where the first query, key and value are."""
    size, own = query.element_size() * heads.dim, query.data_ptr()
    key = own + heads.number * size if memory is None else memory.data_ptr()
    return own, key, key + heads.groups * size


@cache
def _load() -> ctypes.CDLL | None:
    library = load_library("packed_attention")
    if library is not None:
        pointer = ctypes.c_void_p
        library.attend.argtypes = (pointer,) * 3
        library.differentiate.argtypes = (pointer,) * 6
        library.attend.restype = library.differentiate.restype = None
    return library
