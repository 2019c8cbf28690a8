"""Dropout with cheap masks on processors (Srivastava et al. 2014): x ↦ x ⊙ m / (1 − p), m ~ Bernoulli(1 − p).

PyTorch draws a number for every coordinate, which on a processor takes longer than the layer it regularises. Here 64
random bits serve four coordinates, and only which of them stay is remembered for the gradient.
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
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        dropped: Tensor = _Drop.apply(x, self.p)  # type: ignore[no-untyped-call]
        return dropped

    def extra_repr(self) -> str:
        """The rate."""
        return f"{self.p}"


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = (bits.view(torch.int16)[: x.numel()] >= round(rate * 2**16) - 2**15).view(x.shape)
        ctx.save_for_backward(kept)
        ctx.scale = 1.0 / (1.0 - rate)
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.scale), None
