"""Dropout with cheap masks on processors (Srivastava et al. 2014): x ↦ x ⊙ m / (1 − p), m ~ Bernoulli(1 − p).

PyTorch draws a number for every coordinate, one after the other, which on a processor takes longer than the layer it
regularises, and remembers them all for the gradient. Here a coordinate's fate is a function of one number, the seed,
and of its place (native/activation.c): all that is remembered is the seed. Where that does not serve, PyTorch does it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.native import library as native
from seqloom.native import serves


class Dropout(nn.Module):
    """Drops a share of the coordinates while training; a function of torch's seed."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.p = rate

    def forward(self, x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """What stays, scaled up so that the mean does."""
        return drop(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        """The rate."""
        return f"{self.p}"


def drop(x: Float[Tensor, "*N"], rate: float) -> Float[Tensor, "*N"]:
    """Drop a share of the coordinates."""
    if not rate:
        return x
    if not rate < 1.0 or not serves(x):
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
