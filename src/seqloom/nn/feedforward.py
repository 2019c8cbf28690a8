"""The same two-layer network at every position.

FFN(x) = W₂ f(W₁ x)                                     Vaswani et al. 2017, §3.3
gated:  W₂ (f(W_g x) ⊙ W₁ x)                            Shazeer 2020, "GLU variants improve Transformer"
"""

from typing import Any, Literal, assert_never

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.nn.bend import Bend, bend, bend_rows, can_bend_rows, differentiate_bend_
from seqloom.nn.dropout import Dropout
from seqloom.nn.plain import is_plain

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
        out: Tensor
        if torch.is_grad_enabled() and self._is_plain and can_bend_rows(x, self.activation):
            rate = self.dropout.p if self.training else 0.0
            expand, contract = self.expand, self.contract
            weights = expand.weight, expand.bias, contract.weight, contract.bias
            rows = _Transform.apply(x.flatten(0, -2), *weights, self.activation, rate)  # type: ignore[no-untyped-call]
            out = rows.unflatten(0, x.shape[:-1])
        else:
            out = self.contract(self.dropout(self._bend(self.expand(x))))
        return out

    @property
    def _is_plain(self) -> bool:
        """Whether its parts do what their classes say, so that they may be computed together."""
        parts = (
            is_plain(self.expand, nn.Linear) and is_plain(self.contract, nn.Linear) and is_plain(self.dropout, Dropout)
        )
        return type(self) is FeedForward and parts

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


def _gate(h: Tensor, kind: Bend) -> Tensor:
    gate, h = h.chunk(2, dim=-1)
    return bend(gate, kind) * h


class _Transform(torch.autograd.Function):
    """All of it, with nothing kept for the gradient but x and W₁ x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "N D"],
        expand: Float[Tensor, "H D"],
        expand_bias: Float[Tensor, "H"] | None,
        contract: Float[Tensor, "D H"],
        contract_bias: Float[Tensor, "D"] | None,
        kind: Bend,
        rate: float,
    ) -> Float[Tensor, "N D"]:
        h = x @ expand.T
        bias = h.new_zeros(len(expand)) if expand_bias is None else expand_bias
        bent, ctx.how = bend_rows(h, bias, kind, rate)
        ctx.save_for_backward(x, h, bias, expand, contract)
        return bent @ contract.T if contract_bias is None else torch.addmm(contract_bias, bent, contract.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Float[Tensor, "N D"]) -> tuple[Tensor | None, ...]:
        x, h, bias, expand, contract = ctx.saved_tensors
        inner = grad @ contract
        bent, expand_bias = differentiate_bend_(h, bias, inner, ctx.how)
        wanted = ctx.needs_input_grad
        return (
            inner @ expand if wanted[0] else None,
            inner.T @ x if wanted[1] else None,
            expand_bias if wanted[2] else None,
            grad.T @ bent if wanted[3] else None,
            grad.sum(0) if wanted[4] else None,
            None,
            None,
        )
