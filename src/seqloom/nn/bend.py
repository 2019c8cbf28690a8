"""The non-linearity between two linear layers, number by number; with its bias and dropout in one pass: bend.c.

    relu max(h, 0)     squared-relu max(h, 0)²     silu h σ(h)     gelu h Φ(h), and gelu-tanh, its usual approximation

PyTorch keeps what goes into it and what comes out, and dropout's output, for the gradient. Here all that is kept is
what goes in: the rest is found again, in the pass over the gradient.
"""

import ctypes
from functools import cache
from typing import Literal, NamedTuple, assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.native import load_library

Bend = Literal["relu", "gelu", "gelu-tanh", "silu", "tanh", "squared-relu"]
_NATIVE = ("relu", "gelu", "gelu-tanh", "silu", "squared-relu")  # as bend.c numbers them


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
    """Whether bend.c does it."""
    return (
        kind in _NATIVE
        and h.device.type == "cpu"
        and h.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and _load() is not None
    )


def bend_rows(
    h: Float[Tensor, "N H"], bias: Float[Tensor, "H"], kind: Bend, rate: float
) -> tuple[Float[Tensor, "N H"], Bent]:
    """Dropout(f(h + bias))."""
    bent, how = torch.empty_like(h), Bent(kind, rate, int(torch.randint(2**62, ())) if rate else 0)
    _call("bend", how, h, bias, bent)
    return bent, how


def differentiate_bend_(
    h: Float[Tensor, "N H"], bias: Float[Tensor, "H"], grad: Float[Tensor, "N H"], how: Bent
) -> tuple[Float[Tensor, "N H"], Float[Tensor, "H"]]:
    """What `bend_rows` gave, and the gradient by the bias; `grad` becomes the gradient by h."""
    bent, bias_grad = torch.empty_like(h), torch.empty_like(bias)
    _call("bend_back", how, h, bias, bent, grad, bias_grad)
    return bent, bias_grad


def _call(name: str, how: Bent, h: Tensor, bias: Tensor, *others: Tensor) -> None:
    places = [t.data_ptr() for t in (h, *others)]
    getattr(_load(), name)(_NATIVE.index(how.kind), *h.shape, bias.data_ptr(), how.rate, how.seed, *places)


@cache
def _load() -> ctypes.CDLL | None:
    library = load_library("bend")
    if library is not None:
        pointer = ctypes.c_void_p
        first = (ctypes.c_int, ctypes.c_int64, ctypes.c_int, pointer, ctypes.c_float, ctypes.c_uint64)
        library.bend.argtypes = (*first, pointer, pointer)
        library.bend_back.argtypes = (*first, pointer, pointer, pointer, pointer)
        library.bend.restype = library.bend_back.restype = None
    return library
