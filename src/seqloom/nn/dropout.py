"""Dropout with cheap masks on processors (Srivastava et al. 2014): x ↦ x ⊙ m / (1 − p), m ~ Bernoulli(1 − p).

PyTorch draws a number for every coordinate, one after the other, which on a processor takes longer than the layer it
regularises, and remembers them all for the gradient. Here a coordinate's fate is a function of one number, the seed,
and of its place (dropout.c): all that is remembered is the seed. Where there is no C compiler, PyTorch does it.
"""

import ctypes
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.nn.native import load_library


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
    known = x.device.type == "cpu" and x.dtype == torch.float32 and rate < 1.0 and not torch.compiler.is_compiling()
    if not known or _load() is None:
        return F.dropout(x, rate)
    dropped: Tensor = _Drop.apply(x, rate)  # type: ignore[no-untyped-call]
    return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        ctx.plan = rate, int(torch.randint(2**62, ()))
        return _drop(x, *ctx.plan)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _drop(gradient, *ctx.plan), None


def _drop(x: Tensor, rate: float, seed: int) -> Tensor:
    library, x = _load(), x.contiguous()
    assert library is not None
    out = torch.empty_like(x)
    library.drop_all(x.numel(), rate, seed, x.data_ptr(), out.data_ptr())
    return out


@cache
def _load() -> ctypes.CDLL | None:
    library = load_library("dropout")
    if library is not None:
        pointer = ctypes.c_void_p
        library.drop_all.argtypes = (ctypes.c_int64, ctypes.c_float, ctypes.c_uint64, pointer, pointer)
        library.drop_all.restype = None
    return library
