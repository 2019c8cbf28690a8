"""Muon: momentum, orthogonalised (Jordan et al. 2024, "Muon: An optimizer for hidden layers").

    m ← μ m + g        u = g + μ m (Nesterov)        W ← W − η √max(1, rows/columns) · orthogonalise(u)

orthogonalise(u) replaces the singular values of u by about 1, with five steps of a Newton–Schulz iteration:

    X ← a X + (b A + c A²) X,  A = X Xᵀ

Done in the weights' own precision (bfloat16 has no hardware on most CPUs), and at once for all matrices of one shape:
tall ones lie down, since a matrix and its transpose are orthogonalised together.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from weft.train.sharding import cut_like, gather

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_LONG = 1.5  # columns to a row, from which on it is faster not to touch them


class Muon:
    """For the matrices between layers; embeddings, vectors and output layers are better served by Adam."""

    def __init__(
        self, parameters: Sequence[Tensor], *, rate: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        self.parameters, self.rate = list(parameters), rate
        self.momentum, self.weight_decay = momentum, weight_decay
        self.state: dict[Tensor, dict[str, Tensor]] = {}

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
        for parameter in parameters:
            if not self.state.get(parameter):
                self.state[parameter] = {"momentum": torch.zeros_like(parameter)}
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
    x: Tensor = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    if x.shape[2] < _LONG * x.shape[1]:
        for _ in range(_ITERATIONS):
            x = _find_factor(x @ x.mT) @ x
        return x
    gram = x @ x.mT
    total = factor = _find_factor(gram)
    for _ in range(_ITERATIONS - 1):
        gram = factor @ gram @ factor
        factor = _find_factor(gram)
        total = factor @ total
    return total @ x


def _find_factor(gram: Float[Tensor, "M R R"]) -> Float[Tensor, "M R R"]:
    """P = a + b A + c A²."""
    a, b, c = _COEFFICIENTS
    factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
    factor.diagonal(dim1=1, dim2=2).add_(a)
    return factor
