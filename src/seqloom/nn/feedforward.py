"""The feed-forward network: the same two layers at every position.

FFN(x) = W₂ f(W₁ x)                                     Vaswani et al. 2017, §3.3
gated:  W₂ (f(W_g x) ⊙ W₁ x)                            Shazeer 2020, "GLU variants improve Transformer"

The activation f is applied to each number:

    relu max(h, 0)     squared-relu max(h, 0)²     silu h σ(h)     gelu h Φ(h), and gelu-tanh, its usual approximation
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.native import library as native
from seqloom.native.library import in_bfloat16, is_plain, serves
from seqloom.nn.dropout import Dropout

Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "tanh", "squared-relu"]
GatedActivation = Literal["relu-gated", "gelu-gated", "gelu-tanh-gated", "silu-gated"]


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "squared-relu": lambda h: F.relu(h).square(),
}


class ActivationLayer(nn.Module):
    """An activation function as a module."""

    def __init__(self, kind: Activation) -> None:
        super().__init__()
        self.kind: Activation = kind

    def forward(self, h: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """The activation of each number."""
        return _FUNCTIONS[self.kind](h)


class FeedForward(nn.Module):
    """Expand, activate, contract, at each position on its own."""

    def __init__(
        self,
        model_dim: int,
        hidden_dim: int,
        activation: Activation | GatedActivation,
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation = activation
        expansion = 2 if activation.endswith("-gated") else 1
        self.expand = nn.Linear(model_dim, expansion * hidden_dim, bias=bias)
        self.contract = nn.Linear(hidden_dim, model_dim, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Transform each position on its own."""
        if not (torch.is_grad_enabled() and self._has_kernel(x)):
            return self.contract(self.dropout(self._activate(self.expand(x))))
        rate = self.dropout.p if self.training else 0.0
        weights = self.expand.weight, self.expand.bias, self.contract.weight, self.contract.bias
        rows = _Transform.apply(x.flatten(0, -2), *weights, self.activation, rate)  # type: ignore[no-untyped-call]
        return rows.unflatten(0, x.shape[:-1])

    def _has_kernel(self, x: Tensor) -> bool:
        """Whether a kernel computes exactly what these modules do."""
        linear = is_plain(self.expand, nn.Linear) and is_plain(self.contract, nn.Linear)
        plain = type(self) is FeedForward and linear and is_plain(self.dropout, Dropout)
        return plain and self.activation in _FUNCTIONS and serves(x, mixed=True)

    def _activate(self, h: Tensor) -> Tensor:
        if not self.activation.endswith("-gated"):
            return _FUNCTIONS[self.activation](h)
        gate, h = h.chunk(2, dim=-1)
        return _FUNCTIONS[self.activation.removesuffix("-gated")](gate) * h


class _Transform(torch.autograd.Function):
    """The whole network, which keeps only x and W₁ x for the gradient: native/activation.c.

    PyTorch keeps the input and the output of the activation, and the output of dropout. Here the outputs are computed
    again in the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "N D"],
        expand: Float[Tensor, "H D"],
        expand_bias: Float[Tensor, "H"] | None,
        contract: Float[Tensor, "D H"],
        contract_bias: Float[Tensor, "D"] | None,
        kind: Activation,
        rate: float,
    ) -> Float[Tensor, "N D"]:
        if in_bfloat16():
            x, expand, contract = x.bfloat16(), expand.bfloat16(), contract.bfloat16()
        h = x @ expand.T
        bias = torch.zeros(len(expand)) if expand_bias is None else expand_bias.float()
        ctx.plan = kind, rate, int(torch.randint(2**62, ())) if rate else 0
        hidden = native.activate(h, bias, *ctx.plan)
        ctx.save_for_backward(x, h, bias, expand, contract)
        if contract_bias is None:
            return hidden @ contract.T
        return torch.addmm(contract_bias.to(hidden.dtype), hidden, contract.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Float[Tensor, "N D"]) -> tuple[Tensor | None, ...]:
        x, h, bias, expand, contract = ctx.saved_tensors
        inner = grad @ contract
        hidden, expand_bias = native.differentiate_activation_(h, bias, inner, *ctx.plan)
        wanted = ctx.needs_input_grad
        return (
            inner @ expand if wanted[0] else None,
            inner.T @ x if wanted[1] else None,
            expand_bias if wanted[2] else None,
            grad.T @ hidden if wanted[3] else None,
            grad.sum(0) if wanted[4] else None,
            None,
            None,
        )
