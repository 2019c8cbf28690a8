"""Rows of scores over a vocabulary: softmax.c. The scores are contiguous."""

import torch
from torch import Tensor

from seqloom.native.library import find_kernels, threads


def normalise(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The log Σ exp of each row, and what no score of a block exceeds."""
    kernels = find_kernels()
    rows, size = scores.shape
    values, bounds = scores.new_empty(rows), scores.new_empty(rows, -(-size // kernels.block))
    kernels.normalise(threads(), rows, size, *(t.data_ptr() for t in (scores, values, bounds)))
    return values, bounds


def find_top(scores: Tensor, count: int, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and where they stand, largest first; `bounds` are used up."""
    rows, size = scores.shape
    values, places = scores.new_empty(rows, count), torch.empty(rows, count, dtype=torch.long)
    addresses = (t.data_ptr() for t in (bounds, values, places))
    find_kernels().find_top(threads(), rows, size, scores.data_ptr(), count, *addresses)
    return values, places


def cross_entropy_(scores: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """The loss of each row; `scores`, which lack their bias, become the gradient of their sum."""
    losses, bias, targets = scores.new_empty(len(scores)), bias.contiguous(), targets.long().contiguous()
    addresses = (t.data_ptr() for t in (scores, bias, targets))
    find_kernels().cross_entropy(threads(), *scores.shape, *addresses, smoothing, losses.data_ptr())
    return losses
