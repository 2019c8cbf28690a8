"""AdamW (Loshchilov & Hutter 2019), one pass over all weights.

    m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
    W ← W − η (λ W + m̂ / (√v̂ + ε)),    m̂ = m / (1 − β₁ᵗ),  v̂ = v / (1 − β₂ᵗ)

The arithmetic is PyTorch's. Its torch.optim is not used, for it imports PyTorch's compiler: two seconds of every start.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

_EPSILON = 1e-8


class AdamW:
    """For all weights, or those that Muon is not for."""

    def __init__(
        self, parameters: Sequence[Tensor], *, rate: float, betas: tuple[float, float], weight_decay: float
    ) -> None:
        self.parameters, self.rate, self.betas, self.weight_decay = list(parameters), rate, betas, weight_decay
        # Here and not at the first step, when they would lie between what a step holds and gives back.
        self.state = {p: self._start(p) for p in self.parameters}

    @staticmethod
    def _start(parameter: Tensor) -> dict[str, Tensor]:
        zeros = {name: torch.zeros_like(parameter, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
        return {"step": torch.zeros((), device=parameter.device), **zeros}

    @torch.no_grad()
    def step(self, share: float) -> None:
        """One update, at a share of the rate, of every weight that has a gradient."""
        given = [p for p in self.parameters if p.grad is not None]
        if not given:
            return
        gradients = [p.grad for p in given if p.grad is not None]
        names = ("exp_avg", "exp_avg_sq", "step")
        means, squares, steps = ([self.state[p][name] for p in given] for name in names)
        torch._foreach_add_(steps, 1.0)
        torch._fused_adamw_(
            given, gradients, means, squares, [], steps, lr=share * self.rate, beta1=self.betas[0],
            beta2=self.betas[1], weight_decay=self.weight_decay, eps=_EPSILON, amsgrad=False, maximize=False,
        )  # fmt: skip
