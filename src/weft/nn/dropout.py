"""Dropout with cheap masks on processors (Srivastava et al. 2014): x ↦ x ⊙ m / (1 − p), m ~ Bernoulli(1 − p).

PyTorch draws a number for every coordinate, which on a processor takes longer than the layer it regularises. Here 64
random bits serve four coordinates, and those sixteen bits are all that is remembered for the gradient.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


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
    """The function of it."""
    if not rate:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, rate)
    dropped: Tensor = _Drop.apply(x, rate)  # type: ignore[no-untyped-call]
    return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        draws = bits.view(torch.int16)[: x.numel()].view(x.shape)
        ctx.save_for_backward(draws)
        ctx.rate = rate
        return _scale(draws, rate, x.dtype).mul_(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (draws,) = ctx.saved_tensors
        return _scale(draws, ctx.rate, gradient.dtype).mul_(gradient), None


def _scale(draws: Tensor, rate: float, kind: torch.dtype) -> Tensor:
    """What each coordinate is multiplied by. Processors compare and multiply floats faster than they use booleans."""
    lowest = round(rate * 2**16) - 2**15
    return draws.float().ge_(lowest).mul_(1.0 / (1.0 - rate)).to(kind)
