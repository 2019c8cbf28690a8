"""The same two-layer network at every position (SPEC M2).

FFN(x) = W₂ f(W₁ x)                                     Vaswani et al. 2017, §3.3
gated:  W₂ (f(W_g x) ⊙ W₁ x)                            Shazeer 2020, "GLU variants improve Transformer"
"""

from typing import Any, Literal, assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from weft.nn.bind import Function, bind
from weft.nn.dropout import Dropout

Bend = Literal["relu", "gelu", "gelu-tanh", "silu", "tanh", "squared-relu"]
Activation = Literal[Bend, "relu-gated", "gelu-gated", "gelu-tanh-gated", "silu-gated"]


class FeedForward(nn.Module):
    """Expand, bend, contract; positions do not meet."""

    def __init__(
        self, model_dim: int, hidden_dim: int, activation: Activation, *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.activation = activation
        expansion = 2 if activation.endswith("-gated") else 1
        self.expand = nn.Linear(model_dim, expansion * hidden_dim, bias=bias)
        self.contract = nn.Linear(hidden_dim, model_dim, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Transform each position on its own."""
        out: Tensor = self.contract(self.dropout(self._bend(self.expand(x))))
        return out

    def bind(self) -> Function:
        """The same as a function, without dropout."""
        expand, contract, bend_all = bind(self.expand), bind(self.contract), self._bend
        return lambda x: contract(bend_all(expand(x)))

    def _bend(self, h: Tensor) -> Tensor:
        match self.activation:
            case "relu" | "gelu" | "gelu-tanh" | "silu" | "tanh" | "squared-relu":
                return bend(h, self.activation)
            case "relu-gated":
                return _gate(h, "relu")
            case "gelu-gated":
                return _gate(h, "gelu")
            case "gelu-tanh-gated":
                return _gate(h, "gelu-tanh")
            case "silu-gated":
                return _gate(h, "silu")
            case _ as unreachable:
                assert_never(unreachable)


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
            squared: Tensor = _SquaredReLU.apply(h)  # type: ignore[no-untyped-call]
            return squared
        case _ as unreachable:
            assert_never(unreachable)


class _SquaredReLU(torch.autograd.Function):
    """max(h, 0)², whose slope 2 max(h, 0) needs no mask."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        above = F.relu(h)
        ctx.save_for_backward(above)
        return above.square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        above: Tensor = ctx.saved_tensors[0]
        return (grad * above).mul_(2.0)


def _gate(h: Tensor, kind: Bend) -> Tensor:
    gate, h = h.chunk(2, dim=-1)
    return bend(gate, kind) * h
