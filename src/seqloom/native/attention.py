"""Attention within packed sequences: attention.c."""

import ctypes
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.native.library import find_kernels, find_precision, threads
from seqloom.native.structures import SEEN, Attention, check

Places = np.ndarray[Any, np.dtype[np.int64]]


class AttentionPlan(NamedTuple):
    """What attends to what, and how."""

    query_starts: Places
    query_counts: Places
    key_starts: Places
    key_counts: Places
    heads: int
    groups: int
    """Key-value heads."""
    dim: int
    sees: str
    """What a query sees: everything, past or future; itself always."""
    normalised: bool
    """Whether queries and keys are."""
    rotary: tuple[Tensor, Tensor] | None
    """Cosines and sines: (positions, dim / 2)."""
    rate: float
    """Of dropout."""
    seed: int


def attend(query: Tensor, memory: Tensor | None, plan: AttentionPlan) -> tuple[Tensor, Tensor]:
    """What the heads mix (rows, heads · dim), of the rows' type, and the normaliser of each row and head.

    The rows are contiguous, of float32 or bfloat16.
    """
    given, kept = _describe(query, memory, plan)
    out = query.new_empty(len(query), plan.heads * plan.dim)
    normalisers = torch.zeros(len(query), plan.heads, dtype=torch.float32)
    check(find_kernels().attend(threads(), ctypes.addressof(given), out.data_ptr(), normalisers.data_ptr()))
    del kept
    return out, normalisers


def differentiate(
    query: Tensor, memory: Tensor | None, normalisers: Tensor, grad: Tensor, plan: AttentionPlan
) -> tuple[Tensor, Tensor | None]:
    """The gradients by query and memory, from that by what came out."""
    given, kept = _describe(query, memory, plan)
    grad = grad.contiguous()
    assert grad.dtype is query.dtype
    changes = torch.empty_like(query), None if memory is None else torch.empty_like(memory)
    places = (normalisers.data_ptr(), grad.data_ptr(), *_find_parts(*changes, plan))
    check(find_kernels().differentiate_attention(threads(), ctypes.addressof(given), *places))
    del kept
    return changes


def _describe(query: Tensor, memory: Tensor | None, plan: AttentionPlan) -> tuple[Attention, list[Any]]:
    """The plan as attention.c reads it, and what must live as long."""
    counts = [np.ascontiguousarray(array, np.int64) for array in plan[:4]]
    longest = [int(array.max(initial=0)) for array in (counts[1], counts[3])]
    rotary = None if plan.rotary is None else [t.contiguous() for t in plan.rotary]
    inner, both = plan.heads * plan.dim, 2 * plan.groups * plan.dim
    widths = (query.shape[1], both if memory is None else memory.shape[1])
    if widths != (inner + both if memory is None else inner, both):
        raise ShapeError(f"rows of {widths} numbers do not fit {plan.heads} heads and {plan.groups} key-value heads")
    rows = [query, *([] if memory is None else [memory])]
    kinds = {query.dtype} if memory is None else {query.dtype, memory.dtype}
    if not (
        all(t.is_cpu for t in [*rows, *(rotary or [])])
        and (kinds == {torch.float32} or kinds == {torch.bfloat16})
        and all(t.shape[1:] == (plan.dim // 2,) and t.dtype is torch.float32 for t in rotary or [])
    ):
        raise TypeError(
            "attention of packed rows takes rows of one type, float32 or bfloat16, in memory, and rotary tables of "
            "float32 half as wide as a head"
        )
    if rotary is not None and min(map(len, rotary)) < max(longest):
        raise ShapeError(f"rotary positions are known up to {len(rotary[0])} but a sequence has {max(longest)} tokens")
    given = Attention(
        *(
            len(counts[0]),
            plan.heads,
            plan.groups,
            plan.dim,
            SEEN.index(plan.sees),
            plan.normalised,
            *longest,
            find_precision(query),
        ),
        *(array.ctypes.data for array in counts),
        *_find_parts(query, memory, plan),
        *(query.shape[1], (query if memory is None else memory).shape[1]),
        *((None, None) if rotary is None else (t.data_ptr() for t in rotary)),
        *(plan.dim**-0.5, plan.rate, plan.seed),
    )
    return given, [counts, rotary]


def _find_parts(query: Tensor, memory: Tensor | None, plan: AttentionPlan) -> tuple[int, int, int]:
    """Where the first query, key and value are."""
    size, own = query.element_size() * plan.dim, query.data_ptr()
    key = own + plan.heads * size if memory is None else memory.data_ptr()
    return own, key, key + plan.groups * size
