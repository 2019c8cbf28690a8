"""Packing: sequences of different lengths without their padding.

A padded batch (B, T, D) with N real tokens is packed into (N, D). Layers that treat each position on its own work on
these rows and waste nothing. Layers that combine positions (attention, recurrence) get rectangles again: the sequences
are put into a few groups of similar length, each padded only to its own longest sequence.

    padded (B, T, D)  ──pack──▶  (N, D)  ──spread──▶  [(b₁, T₁, D), (b₂, T₂, D), …]
                      ◀─unpack──         ◀─collect──

A sequence is a row of the batch or, if several documents share a row, a document. So nothing attends across documents,
and that needs no mask.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.devices import send
from seqloom.errors import ShapeError
from seqloom.types import TokenBatch

_MAX_GROUPS = 4
_GROUP_COST = 4096  # of one more group, in units of one score of one sequence; measured on two CPU cores
_TOKEN_COST = 16  # of one more padded token, in the same unit


class Packing:
    """The places of the real tokens in a padded batch, found in main memory."""

    def __init__(
        self,
        mask: Bool[Tensor, "B T"],
        documents: Int[Tensor, "B T"] | None = None,
        *,
        known: Bool[Tensor, "B T"] | None = None,
    ) -> None:
        """`known` is the mask in main memory, where `documents` then are, too: it need not be read from elsewhere."""
        if documents is not None and documents.shape != mask.shape:
            raise ShapeError(f"documents has shape {tuple(documents.shape)} but mask has {tuple(mask.shape)}")
        known = mask.cpu() if known is None else known
        self.mask, self.has_documents = mask, documents is not None
        self.lengths = known.sum(1).tolist() if documents is None else _document_lengths(known, documents.cpu())
        self.counts = np.array(self.lengths, dtype=np.int64)
        self.num_tokens = sum(self.lengths)
        self.full = self.num_tokens == mask.numel()
        self._known = known
        self._rows = None if self.full else self.send(self._places)
        self._edges: dict[int, Tensor] = {}
        self._groups: dict[tuple[int, bool], Groups] = {}

    @classmethod
    def of(cls, batch: TokenBatch) -> "Packing":
        """The places of the real tokens of a batch."""
        known = batch.known
        return cls(batch.mask, known.documents, known=known.mask if known.mask.is_cpu else None)

    @cached_property
    def _places(self) -> Int[Tensor, "N"]:
        """Those of the padded batch, row by row; in main memory."""
        return self._known.reshape(-1).nonzero().squeeze(1)

    @property
    def longest(self) -> int:
        """The length of the longest sequence."""
        return int(self.counts.max(initial=0))

    @cached_property
    def positions(self) -> Int[Tensor, "N"]:
        """The position of each token in its sequence."""
        return self.send(self._find_positions())

    @cached_property
    def token_lengths(self) -> Int[Tensor, "N"]:
        """The length of each token's sequence."""
        return self.send(np.repeat(self.counts, self.counts))

    @cached_property
    def bounds(self) -> Int[Tensor, "S"]:
        """Where each sequence begins, and where the last one ends; in 32 bits."""
        return self.send(np.append(0, np.cumsum(self.counts)).astype(np.int32))

    @cached_property
    def columns(self) -> Int[Tensor, "N"]:
        """The column of each token in the padded batch."""
        return self.send(self._places % max(self.mask.shape[1], 1))

    def find_row(self, sequence: int) -> int:
        """The row of a sequence in the padded batch; the first, if it is empty."""
        start = int(self.starts[sequence])
        return int(self._places[start]) // self.mask.shape[1] if self.lengths[sequence] else 0

    def _find_positions(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        positions: np.ndarray[Any, np.dtype[np.int64]] = np.arange(self.num_tokens) - np.repeat(
            self.starts, self.counts
        )
        return positions

    def send(self, numbers: np.ndarray[Any, np.dtype[np.generic]] | list[int] | Tensor) -> Tensor:
        """Numbers in main memory, on the device of the batch."""
        return send(torch.as_tensor(numbers), self.mask.device)

    @cached_property
    def starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The packed index of the first token of each sequence."""
        return np.cumsum(self.counts) - self.counts

    def pack(self, x: Float[Tensor, "B T *D"]) -> Float[Tensor, "N *D"]:
        """Remove the padding."""
        if x.shape[:2] != self.mask.shape:
            raise ShapeError(f"mask has shape {tuple(self.mask.shape)} but x has {tuple(x.shape[:2])} (rows, tokens)")
        flat = x.flatten(0, 1)
        return flat if self._rows is None else flat[self._rows]

    def unpack(self, x: Float[Tensor, "N *D"]) -> Float[Tensor, "B T *D"]:
        """Put the padding back, as zeros."""
        if self._rows is not None:
            x = x.new_zeros(self.mask.numel(), *x.shape[1:]).index_copy(0, self._rows, x)
        return x.view(*self.mask.shape, *x.shape[1:])

    def shift(self, x: Float[Tensor, "N D"], offset: int) -> Float[Tensor, "N D"]:
        """For each token, the one `offset` positions later; zeros beyond the ends of its sequence."""
        if offset == 0:
            return x
        if offset not in self._edges:
            position = self._find_positions() + offset
            beyond = (position < 0) | (position >= np.repeat(self.counts, self.counts))
            self._edges[offset] = self.send(np.flatnonzero(beyond))
        return x.roll(-offset, 0).index_fill_(0, self._edges[offset], 0.0)

    def groups(self, *, max_groups: int = _MAX_GROUPS, reverse: bool = False) -> "Groups":
        """Rectangles of sequences of similar length; with `reverse`, each sequence runs from its end to its start."""
        key = (max_groups, reverse)
        if key not in self._groups:
            self._groups[key] = Groups(self, group_by_length(self.lengths, max_groups), reverse=reverse)
        return self._groups[key]


class Groups:
    """A packed batch as a few rectangles, and the way back."""

    def __init__(self, packing: Packing, members: list[list[int]], *, reverse: bool = False) -> None:
        self.packing, self._reverse = packing, reverse
        self.members = members or [[]]  # a batch without tokens is one empty rectangle, so that layers need no check
        indices, masks, self.shapes = [], [], []
        for group in self.members:
            length = packing.counts[group][:, None]  # (b, 1)
            position = np.arange(length.max(initial=1))  # (T,)
            real = position < length
            order = length - 1 - position if reverse else position
            indices.append((packing.starts[group][:, None] + np.where(real, order, 0)).reshape(-1))
            masks.append(real)
            self.shapes.append(real.shape)
        index, real = np.concatenate(indices), np.concatenate([m.reshape(-1) for m in masks])
        slots = np.flatnonzero(real)
        back = np.zeros(packing.num_tokens, np.int64)
        back[index[slots]] = slots
        self.masks = [None if m.all() else packing.send(m) for m in masks]
        """Which slots of each rectangle are real tokens; None if all are."""
        self._identity = real.all() and np.array_equal(index, np.arange(packing.num_tokens))
        # An empty sequence has no token of its own to fill its slots with; any index will do, because they are masked.
        self._index = packing.send(np.minimum(index, max(packing.num_tokens - 1, 0)))
        self._back = packing.send(back)
        self._covers = len(slots) == packing.num_tokens  # not so if a source is in no group because its target is empty
        self._padding = packing.send(np.flatnonzero(~real))
        self._sizes = [b * t for b, t in self.shapes]

    def columns(self, sequence: int) -> tuple[int, Int[Tensor, "L"]]:
        """The row of a sequence in the padded batch, and the columns of its tokens in their order here."""
        start, length = int(self.packing.starts[sequence]), self.packing.lengths[sequence]
        columns = self.packing.columns[start : start + length]
        return self.packing.find_row(sequence), columns.flip(0) if self._reverse else columns

    def spread(self, x: Float[Tensor, "N *D"]) -> list[Tensor]:
        """(N, …) → one (b, T, …) for each group. The contents of the padding are arbitrary."""
        if not len(x):
            x = x.new_zeros(sum(self._sizes), *x.shape[1:])
        elif not self._covers:
            x = x.index_select(0, self._index)
        elif not self._identity:
            x = _gather(x, self._index, self._back)
        return [part.unflatten(0, shape) for part, shape in zip(x.split(self._sizes), self.shapes, strict=True)]

    def collect(self, parts: list[Tensor]) -> Tensor:
        """One (b, T, …) for each group → (N, …), without the padding."""
        x = torch.cat([part.flatten(0, 1) for part in parts]) if len(parts) > 1 else parts[0].flatten(0, 1)
        return x if self._identity else _gather(x, self._back, self._index, self._padding)


@dataclass(frozen=True)
class Pairing:
    """The rows of a target and of its source in the same groups: for attention from one to the other."""

    target: Groups
    source: Groups

    @classmethod
    def of(cls, target: Packing, source: Packing) -> "Pairing":
        """Group the rows by the target's lengths."""
        if len(target.lengths) != len(source.lengths):
            raise ShapeError(f"target has {len(target.lengths)} rows but source has {len(source.lengths)}")
        members = group_by_length(target.lengths)
        return cls(Groups(target, members), Groups(source, members))


def unpack_pairs(parts: list[Tensor], queries: Groups, keys: Groups) -> Float[Tensor, "B H T S"]:
    """The attention weights of each group, at the places of their tokens in the padded batch."""
    (batch, length), (_, memory_length) = queries.packing.mask.shape, keys.packing.mask.shape
    out = parts[0].new_zeros(batch, parts[0].shape[1], length, memory_length)
    for part, members in zip(parts, queries.members, strict=True):
        for weights, sequence in zip(part, members, strict=True):
            row, columns = queries.columns(sequence)
            _, seen = keys.columns(sequence)
            out[row][:, columns[:, None], seen] = weights[:, : len(columns), : len(seen)]
    return out


def group_by_length(lengths: list[int], max_groups: int = _MAX_GROUPS) -> list[list[int]]:
    """Put sequences into at most `max_groups` groups so that the sum of the squares of their padded lengths is small.

    Dynamic programming over the distinct lengths u₁ < u₂ < …: a group ends at some uⱼ, and every sequence in it is
    padded to uⱼ. Sequences of length 0 belong to no group.
    """
    values = np.array(lengths, dtype=np.int64)
    distinct, counts = np.unique(values[values > 0], return_counts=True)
    if distinct.size == 0:
        return []
    below = np.concatenate([[0], np.cumsum(counts)])  # how many sequences are shorter
    per_row = distinct * distinct + _TOKEN_COST * distinct
    # cost[i, j]: a group of uᵢ … uⱼ
    cost = (below[None, 1:] - below[:-1, None]) * per_row[None, :] + float(_GROUP_COST)
    cost[np.tril_indices(distinct.size, -1)] = np.inf
    best = np.array([0.0] + [np.inf] * distinct.size)  # best[j]: the least cost of the first j lengths in g groups
    totals, choices = [], []
    for _ in range(min(max_groups, distinct.size)):
        candidate = best[:-1, None] + cost
        choices.append(candidate.argmin(0))
        best = np.concatenate([[np.inf], candidate.min(0)])
        totals.append(best[-1])
    groups, end = [], distinct.size
    for choice in reversed(choices[: int(np.argmin(totals)) + 1]):  # from the longest back
        start = int(choice[end - 1])
        groups.append(np.flatnonzero((values >= distinct[start]) & (values <= distinct[end - 1])).tolist())
        end = start
    return groups[::-1]


def masked_mean(states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """The mean over real tokens."""
    weight = mask.unsqueeze(-1).to(states.dtype)
    return (states * weight).sum(1) / weight.sum(1).clamp(min=1.0)


def first_real(states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """The state of the first real token; zeros if there is none."""
    first = mask & (mask.cumsum(1) == 1)
    return (states * first.unsqueeze(-1)).sum(1)


def _document_lengths(mask: Tensor, documents: Tensor) -> list[int]:
    rows = torch.arange(mask.shape[0]).unsqueeze(-1).expand_as(mask)
    owner = torch.stack([rows[mask], documents[mask]], dim=1)
    lengths: list[int] = torch.unique_consecutive(owner, dim=0, return_counts=True)[1].tolist()
    return lengths


def find_places(chosen: Bool[Tensor, "B T"], device: torch.device) -> Int[Tensor, "M"]:
    """Where a padded batch has what is chosen, row by row; best asked in main memory, wherever the batch is."""
    return send(chosen.reshape(-1).nonzero().squeeze(1), device)


def pick(x: Float[Tensor, "B T *D"] | Int[Tensor, "B T"], places: Int[Tensor, "M"]) -> Tensor:
    """What a padded batch has at these places."""
    return x.flatten(0, 1)[places]


def _gather(x: Tensor, index: Tensor, inverse: Tensor, absent: Tensor | None = None) -> Tensor:
    return _Gather.apply(x, index, inverse, absent)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """x[index], where `index` holds each row at most once: so its gradient is a gather, too, not a slow scatter-add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, absent: Tensor | None) -> Tensor:
        ctx.inverse, ctx.absent = inverse, absent
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad = grad.index_select(0, ctx.inverse)
        if ctx.absent is not None:  # rows of x that are not in `index`
            grad = grad.index_fill_(0, ctx.absent, 0.0)
        return grad, None, None, None
