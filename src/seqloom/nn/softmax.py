"""Rows of scores over a vocabulary: native/softmax.c where it serves, PyTorch elsewhere.

On a processor, PyTorch goes through the scores of all rows once for each of five operations; a row at a time stays in
the cache meanwhile.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.native import library as native
from seqloom.native import serves

_SMALL = 100_000  # scores, for which one call of PyTorch costs less than five


class Normaliser(NamedTuple):
    """What a look at all scores has found."""

    values: Float[Tensor, "R"]
    """log Σ exp of each row: what a score exceeds log P by."""
    bounds: Float[Tensor, "R B"] | None
    """What no score of a block exceeds, for `find_top`."""


def normalise(scores: Float[Tensor, "R V"]) -> Normaliser:
    """How rows of scores become log P, and where their largest are."""
    if not _serves(scores):
        return Normaliser(scores.logsumexp(-1), None)
    return Normaliser(*native.normalise(scores))


def find_top(
    scores: Float[Tensor, "R V"], count: int, bounds: Float[Tensor, "R B"] | None
) -> tuple[Float[Tensor, "R N"], Int[Tensor, "R N"]]:
    """The `count` largest of each row and where they stand, largest first.

    `bounds` are what `normalise` found, and used up; since then scores may have become smaller, not larger.
    """
    if bounds is None or scores.shape[1] < 4 * count or not _serves(scores):
        return _find_top(scores, count)
    return native.find_top(scores, count, bounds)


def differentiate_loss_(
    scores: Float[Tensor, "R V"], bias: Float[Tensor, "V"], targets: Int[Tensor, "R"], smoothing: float
) -> Float[Tensor, ""]:
    """The sum of the rows' cross-entropies; `scores`, which lack their bias, become its gradient.

    q = (1 − ε)·1_y + ε/V    loss = logsumexp(z) − Σ_v q_v z_v    ∂loss/∂z = softmax(z) − q
    """
    if _serves(scores, bias):
        return native.cross_entropy_(scores, bias, targets, smoothing).sum()
    scores += bias
    normaliser, right = scores.logsumexp(1, keepdim=True), targets.unsqueeze(1)
    loss = (normaliser - (1.0 - smoothing) * scores.gather(1, right)).sum() - smoothing / len(bias) * scores.sum()
    scores.sub_(normaliser).exp_().sub_(smoothing / len(bias))
    scores.scatter_add_(1, right, scores.new_full((), smoothing - 1.0).expand_as(right))
    return loss


def _find_top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The n largest lie in the n blocks with the largest maxima: only those are sorted."""
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


def _serves(scores: Tensor, *others: Tensor) -> bool:
    return scores.is_contiguous() and serves(scores, *others)
