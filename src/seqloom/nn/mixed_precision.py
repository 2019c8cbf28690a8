"""A residual stream in float32 around sublayers that multiply in bfloat16 (Kalamkar et al. 2019).

    h ──┬── norm ──▶ bfloat16 ── sublayer ──▶ bfloat16 ── dropout ──(+)──▶ h, in float32
        └───────────────────────────────────────────────────────────┘

Autocast has the products computed in bfloat16. What stands between them, here and in the feed-forward network, in
attention and in the loss, reads and writes bfloat16 and computes in float32: a cast is a part of each kernel, not a
pass over memory of its own. Where kernels do not compute, modules are called as they are, and PyTorch casts.
"""

from typing import Any, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.native import library as native
from seqloom.native.library import in_bfloat16, is_plain, serves
from seqloom.nn.dropout import Dropout


def normalise(norm: nn.Module, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
    """norm(x), in bfloat16 if that is what is multiplied next: native/norm.c."""
    if not (
        in_bfloat16() and x.dtype is torch.float32 and _is_known(norm) and serves(x, *norm.parameters(), mixed=True)
    ):
        out: Tensor = norm(x)
        return out
    shift = norm.bias if isinstance(norm, nn.LayerNorm) else None
    rows: Tensor = _Normalise.apply(x.flatten(0, -2), norm.weight, shift, norm.eps)  # type: ignore[no-untyped-call]
    return rows.unflatten(0, x.shape[:-1])


def _is_known(norm: nn.Module) -> TypeGuard[nn.LayerNorm | nn.RMSNorm]:
    """Whether the kernel computes exactly what this module does."""
    if not (is_plain(norm, nn.LayerNorm) or is_plain(norm, nn.RMSNorm)):
        return False
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    whole = isinstance(norm, nn.RMSNorm) or norm.bias is not None
    return whole and norm.eps is not None and norm.weight is not None and norm.weight.ndim == 1


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, shift: Tensor | None, epsilon: float) -> Tensor:
        ctx.epsilon = epsilon
        ctx.save_for_backward(x, gain, shift)
        return native.normalise_rows(x, gain, shift, epsilon)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, shift = ctx.saved_tensors
        return *native.differentiate_norm(x, gain, shift, ctx.epsilon, grad), None


def add_dropped(x: Float[Tensor, "*N D"], y: Float[Tensor, "*N D"], dropout: nn.Module) -> Float[Tensor, "*N D"]:
    """x + dropout(y); x stays in float32 where y comes from products in bfloat16: native/dropout.c."""
    short = y.dtype is torch.bfloat16 and x.dtype is torch.float32 and x.shape == y.shape
    if not (short and in_bfloat16() and _drops_some(dropout) and serves(x, y, mixed=True)):
        return x + dropout(y)
    rate = dropout.p if dropout.training else 0.0
    out: Tensor = _AddDropped.apply(x, y, rate)  # type: ignore[no-untyped-call]
    return out


def _drops_some(dropout: nn.Module) -> TypeGuard[Dropout]:
    """Whether the kernel computes exactly what this module does; what drops all makes no scale."""
    return is_plain(dropout, Dropout) and isinstance(dropout, Dropout) and dropout.p < 1.0


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, rate: float) -> Tensor:
        ctx.plan = rate, int(torch.randint(2**62, ())) if rate else 0
        return native.add_dropped(x, y, *ctx.plan)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return grad, native.drop_short(grad, *ctx.plan), None
