"""Muon: momentum, orthogonalised (Jordan et al. 2024, "Muon: An optimizer for hidden layers").

    m ← μ m + g        u = g + μ m (Nesterov)        W ← W − η √max(1, rows/columns) · orthogonalise(u)

orthogonalise(u) replaces the singular values of u by about 1, with three steps of a Newton–Schulz iteration:

    X ← a X + (b A + c A²) X,  A = X Xᵀ

Each step has coefficients of its own (Amsel et al. 2025, "The Polar Express"): of all odd polynomials of degree five,
those that stay nearest to 1 where the singular values are by then, from [0.02, 1] on; at the end they are in 1 ± 0.1.
So that they start there, X is divided by (Σ σ⁴)^¼, which A tells: no σ is larger, and few are much smaller.

Done in the weights' own precision (bfloat16 has no hardware on most CPUs), and at once for all matrices of one shape:
tall ones lie down, since a matrix and its transpose are orthogonalised together.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.training.sharding import cut_like, gather

_STEPS = ((7.710969, -22.113755, 16.248743), (3.215276, -2.411172, 0.501300), (2.218308, -1.593990, 0.410748))
_TINY = 1e-30  # what nothing is divided by, instead of 0
_LONG = 1.5  # columns to a row, from which on it is faster not to touch them


class Muon:
    """For the matrices between layers; embeddings, vectors and output layers are better served by Adam."""

    def __init__(
        self, parameters: Sequence[Tensor], *, rate: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        self.parameters, self.rate = list(parameters), rate
        self.momentum, self.weight_decay = momentum, weight_decay
        self.state = {p: {"momentum": torch.zeros_like(p, requires_grad=False)} for p in self.parameters}

    @torch.no_grad()
    def step(self, share: float) -> None:
        """One update, at a share of the rate, of every matrix that has a gradient."""
        shapes: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for parameter in self.parameters:
            if parameter.grad is not None:
                shapes[tuple(sorted(parameter.shape))].append(parameter)
        for parameters in shapes.values():
            self._update(parameters, share * self.rate)

    def _update(self, parameters: list[Tensor], rate: float) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        moments = [self.state[p]["momentum"] for p in parameters]
        torch._foreach_mul_(moments, self.momentum)
        torch._foreach_add_(moments, gradients)
        wanted = torch._foreach_add(gradients, moments, alpha=self.momentum)
        directions = orthogonalise(torch.stack([_lay_flat(gather(matrix)) for matrix in wanted]))
        torch._foreach_mul_(parameters, 1.0 - rate * self.weight_decay)
        for direction, parameter in zip(directions, parameters, strict=True):
            rows, columns = parameter.shape
            step = rate * max(1.0, rows / columns) ** 0.5
            parameter.sub_(cut_like(direction.T if rows > columns else direction, parameter), alpha=step)


def _lay_flat(matrix: Float[Tensor, "R C"]) -> Tensor:
    flat: Tensor = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    return flat


def orthogonalise(matrices: Float[Tensor, "M R C"]) -> Float[Tensor, "M R C"]:
    """The nearest matrices whose singular values are about 1; cheapest where they have fewer rows than columns.

    Every step multiplies X by a polynomial of A from the left, so long rows need not be touched in between: with
    P = a + b A + c A², the steps are A ← P A P and Q ← P Q, and the answer is Q X.
    """
    x: Tensor = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=_TINY)
    gram = x @ x.mT
    size = gram.norm(dim=(1, 2), keepdim=True).clamp(min=_TINY)  # (Σ σ⁴)^½
    gram = gram / size
    factor = _find_factor(gram, *_STEPS[0])
    total = factor / size.sqrt()
    if x.shape[2] < _LONG * x.shape[1]:
        x = total @ x
        for step in _STEPS[1:]:
            x = _find_factor(x @ x.mT, *step) @ x
        return x
    for step in _STEPS[1:]:
        gram = factor @ gram @ factor
        factor = _find_factor(gram, *step)
        total = factor @ total
    out: Tensor = total @ x
    return out


def _find_factor(gram: Float[Tensor, "M R R"], a: float, b: float, c: float) -> Float[Tensor, "M R R"]:
    """P = a + b A + c A²."""
    factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
    factor.diagonal(dim1=1, dim2=2).add_(a)
    return factor
