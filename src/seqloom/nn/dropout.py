"""Dropout with cheap masks on a CPU (Srivastava et al. 2014): x ↦ x ⊙ m / (1 − p), m ~ Bernoulli(1 − p).

PyTorch draws a random number for every coordinate, one after the other, and keeps the mask for the gradient. On a CPU
that can take longer than the layer it regularises. Here the mask is a function of a seed and of each coordinate's index
(native/activation.c), and only the seed is kept. Where the kernel cannot be used, PyTorch does the work.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.native import library as native


class Dropout(nn.Module):
    """Sets a share of the coordinates to zero while training; torch's seed determines which."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.p = rate

    def forward(self, x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """What remains, scaled up so that the mean stays the same."""
        return drop(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        """The rate."""
        return f"{self.p}"


def drop(x: Float[Tensor, "*N"], rate: float) -> Float[Tensor, "*N"]:
    """Set a share of the coordinates to zero and scale up the others."""
    if not rate:
        return x
    if not (rate < 1.0 and x.dtype is torch.float32 and native.serves(x, mixed=True)):
        return F.dropout(x, rate)
    return _Drop.apply(x, rate)  # type: ignore[no-untyped-call]


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        ctx.plan = rate, int(torch.randint(2**62, ()))
        return native.drop(x, *ctx.plan)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return native.drop(gradient, *ctx.plan), None
