"""The optimizers, behind one small interface: a step, and a state made of tensors alone.

AdamW (Loshchilov & Hutter 2019), one pass over all weights:

    m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
    W ← W − η (λ W + m̂ / (√v̂ + ε)),    m̂ = m / (1 − β₁ᵗ),  v̂ = v / (1 − β₂ᵗ)

Muon, orthogonalised momentum (Jordan et al. 2024, "Muon: An optimizer for hidden layers"):

    m ← μ m + g        u = g + μ m (Nesterov)        W ← W − η √max(1, rows/columns) · orthogonalise(u)

orthogonalise(u) replaces the singular values of u by about 1, with three steps of a Newton–Schulz iteration:

    X ← a X + (b A + c A²) X,  A = X Xᵀ

Each step has coefficients of its own (Amsel et al. 2025, "The Polar Express"): of all odd polynomials of degree five,
those that stay nearest to 1 where the singular values are by then, from [0.02, 1] on; at the end they are in 1 ± 0.1.
So that they start there, X is divided by (Σ σ⁴)^¼, which A yields: no σ is larger, and few are much smaller.

AdamW's arithmetic is PyTorch's. Its torch.optim is not used: it imports PyTorch's compiler, two seconds of every start.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import assert_never

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.config.train import AdamW as AdamWSection
from seqloom.config.train import Muon as MuonSection
from seqloom.config.train import Optimizer as OptimizerSection
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.positions import LearnedPositions
from seqloom.training.distributed import cut_like, gather

_EPSILON = 1e-8
_STEPS = ((7.710969, -22.113755, 16.248743), (3.215276, -2.411172, 0.501300), (2.218308, -1.593990, 0.410748))
_TINY = 1e-30  # instead of 0, which nothing can be divided by
_LONG = 1.5  # columns to a row, from which on it is faster not to touch them


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


class Muon:
    """For the matrices between layers; embeddings, vectors and output layers are better served by Adam.

    It computes in the weights' own precision (bfloat16 has no hardware on most CPUs), and at once for all matrices of
    one shape, tall ones transposed: a matrix and its transpose are orthogonalised together.
    """

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
        directions = orthogonalise(torch.stack([_make_wide(gather(matrix)) for matrix in wanted]))
        torch._foreach_mul_(parameters, 1.0 - rate * self.weight_decay)
        for direction, parameter in zip(directions, parameters, strict=True):
            rows, columns = parameter.shape
            step = rate * max(1.0, rows / columns) ** 0.5
            parameter.sub_(cut_like(direction.T if rows > columns else direction, parameter), alpha=step)


def _make_wide(matrix: Float[Tensor, "R C"]) -> Tensor:
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


class Optimizer:
    """One or more optimizers that share a schedule. Its state can be saved without pickling."""

    def __init__(self, model: nn.Module, config: OptimizerSection) -> None:
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self._parts = _build(model, config)
        self._share = 1.0

    def set_rate(self, share: float) -> None:
        """Every rate at a share of its peak."""
        self._share = share

    def step(self) -> None:
        """Update the weights from their gradients, and drop those."""
        for part in self._parts:
            part.step(self._share)
            for parameter in part.parameters:
                parameter.grad = None

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Every number the optimizers remember, as `parameter/number`."""
        for part in self._parts:
            for parameter, numbers in part.state.items():
                for key, value in numbers.items():
                    yield f"{self._names[parameter]}/{key}", value

    def load(self, state: dict[str, Tensor]) -> None:
        """Remember what `state` says."""
        for part in self._parts:
            for parameter in part.parameters:
                prefix = self._names[parameter] + "/"
                mine = {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
                part.state[parameter] |= {
                    key: cut_like(value, parameter if value.ndim else value).to(parameter.device, copy=True)
                    for key, value in mine.items()
                }


def _build(model: nn.Module, config: OptimizerSection) -> list[AdamW | Muon]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    match config:
        case AdamWSection():
            return [*_adamw(trained, config)]
        case MuonSection():
            tables = {p for m in model.modules() if isinstance(m, _TABLES) for p in m.parameters()}
            matrices = [p for p in trained if p.ndim == 2 and p not in tables]
            rest = [p for p in trained if p.ndim != 2 or p in tables]
            muon = Muon(matrices, rate=config.matrix_rate, momentum=config.momentum, weight_decay=config.weight_decay)
            return [muon, *_adamw(rest, config)]
        case _ as unreachable:
            assert_never(unreachable)


_TABLES = (TokenEmbedding, OutputLayer, LearnedPositions)


def _adamw(parameters: list[nn.Parameter], config: AdamWSection | MuonSection) -> list[AdamW]:
    """Matrices decay, vectors (biases, gains) do not."""
    betas = (config.beta1, config.beta2)
    groups = (
        ([p for p in parameters if p.ndim >= 2], config.weight_decay),
        ([p for p in parameters if p.ndim < 2], 0.0),
    )
    return [AdamW(group, rate=config.learning_rate, betas=betas, weight_decay=d) for group, d in groups]
