"""Dropout of a tensor as a function of one number: dropout.c."""

import torch
from torch import Tensor

from seqloom.native.library import find_kernels, threads


def drop(x: Tensor, rate: float, seed: int) -> Tensor:
    """Each number is lost with probability `rate` < 1; the others grow."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=torch.float32)
    find_kernels().drop(threads(), x.numel(), rate, seed, x.data_ptr(), out.data_ptr())
    return out
