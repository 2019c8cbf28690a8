"""The activation of a feed-forward network with its bias and dropout: activation.c."""

import torch
from torch import Tensor

from seqloom.native.library import find_kernels, threads
from seqloom.native.structures import ACTIVATIONS, check


def activate(h: Tensor, bias: Tensor, kind: str, rate: float, seed: int) -> Tensor:
    """Dropout(f(h + bias)), row by row."""
    h, bias = h.contiguous(), bias.contiguous()
    out, where = torch.empty(h.shape, dtype=torch.float32), (bias.data_ptr(), rate, seed)
    find_kernels().activate(threads(), ACTIVATIONS.index(kind), *h.shape, *where, h.data_ptr(), out.data_ptr())
    return out


def differentiate_(h: Tensor, bias: Tensor, grad: Tensor, kind: str, rate: float, seed: int) -> tuple[Tensor, Tensor]:
    """What `activate` gave, and the gradient by the bias; `grad`, which is contiguous, becomes the gradient by h."""
    h, bias = h.contiguous(), bias.contiguous()
    assert grad.is_contiguous()
    out, bias_grad = torch.empty(h.shape, dtype=torch.float32), torch.empty(bias.shape, dtype=torch.float32)
    places = (t.data_ptr() for t in (h, out, grad, bias_grad))
    about = (ACTIVATIONS.index(kind), *h.shape, bias.data_ptr(), rate, seed)
    check(find_kernels().differentiate_activation(threads(), *about, *places))
    return out, bias_grad
