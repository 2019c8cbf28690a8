"""The non-linearity between two linear layers; with bias and dropout in one pass: native/activation.c.

    relu max(h, 0)     squared-relu max(h, 0)²     silu h σ(h)     gelu h Φ(h), and gelu-tanh, its usual approximation

PyTorch keeps what goes into it and what comes out, and dropout's output, for the gradient. Here all that is kept is
what goes in: the rest is found again, in the pass over the gradient.
"""

from typing import Literal, NamedTuple, assert_never, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.native import library as native
from seqloom.native import serves

Bend = Literal["relu", "gelu", "gelu-tanh", "silu", "tanh", "squared-relu"]


class Bending(nn.Module):
    """A non-linearity as a layer of its own."""

    def __init__(self, kind: Bend) -> None:
        super().__init__()
        self.kind: Bend = kind

    def forward(self, h: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Bend each number."""
        return bend(h, self.kind)


def bend(h: Float[Tensor, "*N D"], kind: Bend) -> Float[Tensor, "*N D"]:
    """The non-linearity, number by number; `gelu-tanh` is GELU's usual approximation."""
    match kind:
        case "relu":
            return F.relu(h)
        case "gelu":
            return F.gelu(h)
        case "gelu-tanh":
            return F.gelu(h, approximate="tanh")
        case "silu":
            return F.silu(h)
        case "tanh":
            return h.tanh()
        case "squared-relu":
            return F.relu(h).square()
        case _ as unreachable:
            assert_never(unreachable)


class Bent(NamedTuple):
    """How rows were bent, so that the gradient finds the same."""

    kind: Bend
    rate: float
    """Of dropout."""
    seed: int


def can_bend_rows(h: Tensor, kind: str) -> bool:
    """Whether a kernel does it."""
    return kind in get_args(Bend) and serves(h)


def bend_rows(
    h: Float[Tensor, "N H"], bias: Float[Tensor, "H"], kind: Bend, rate: float
) -> tuple[Float[Tensor, "N H"], Bent]:
    """Dropout(f(h + bias))."""
    how = Bent(kind, rate, int(torch.randint(2**62, ())) if rate else 0)
    return native.activate(h, bias, *how), how


def differentiate_bend_(
    h: Float[Tensor, "N H"], bias: Float[Tensor, "H"], grad: Float[Tensor, "N H"], how: Bent
) -> tuple[Float[Tensor, "N H"], Float[Tensor, "H"]]:
    """What `bend_rows` gave, and the gradient by the bias; `grad` becomes the gradient by h."""
    return native.differentiate_activation_(h, bias, grad, *how)
