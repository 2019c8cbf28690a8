"""Muon: momentum, orthogonalised (Jordan et al. 2024, "Muon: An optimizer for hidden layers").

    m ← μ m + g        u = g + μ m (Nesterov)        W ← W − η √max(1, rows/columns) · orthogonalise(u)

orthogonalise(u) replaces the singular values of u by about 1, with five steps of a Newton–Schulz iteration:

    X ← a X + (b A + c A²) X,  A = X Xᵀ

Done in the weights' own precision (bfloat16 has no hardware on most CPUs), and for all matrices of one shape at once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from weft.train.sharding import cut_like, gather

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """For the matrices between layers; embeddings, vectors and output layers are better served by Adam."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append(parameter)
            for parameters in shapes.values():
                self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        moments = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in parameters]
        torch._foreach_mul_(moments, group["momentum"])
        torch._foreach_add_(moments, gradients)
        wanted = torch._foreach_add(gradients, moments, alpha=group["momentum"])
        directions = orthogonalise(torch.stack([gather(matrix) for matrix in wanted]))
        rows, columns = parameters[0].shape
        step = group["lr"] * max(1.0, rows / columns) ** 0.5
        torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
        updates = [cut_like(matrix, parameter) for matrix, parameter in zip(directions, parameters, strict=True)]
        torch._foreach_add_(parameters, updates, alpha=-step)


def orthogonalise(matrices: Float[Tensor, "M R C"]) -> Float[Tensor, "M R C"]:
    """The nearest matrices whose singular values are about 1."""
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x: Tensor = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.mT if tall else x
