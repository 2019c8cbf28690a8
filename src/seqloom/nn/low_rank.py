"""Low-rank adapters: fine-tune a few numbers per matrix (Hu et al. 2022, "LoRA").

    W′ = W + (α/r) B A,   B (out × r) starts at 0,  A (r × in) is random;  only A and B are trained

When training ends, the product is added to W, so a finished model is an ordinary one.
"""

import math
from collections import Counter
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize


class LowRankUpdate(nn.Module):
    """The update of one matrix."""

    def __init__(self, weight: Float[Tensor, "O I"], rank: int, alpha: float) -> None:
        super().__init__()
        out_dim, in_dim = weight.shape
        self.scale = alpha / rank
        self.down = nn.Parameter(nn.init.kaiming_uniform_(weight.new_empty(rank, in_dim), a=math.sqrt(5.0)))
        self.up = nn.Parameter(weight.new_zeros(out_dim, rank))

    def forward(self, weight: Float[Tensor, "O I"]) -> Float[Tensor, "O I"]:
        """The adapted matrix."""
        return torch.addmm(weight, self.up, self.down, alpha=self.scale)


def add_adapters(model: nn.Module, names: set[str], rank: int, alpha: float) -> None:
    """Freeze the named parameters, and give an adapter to each that is the matrix of one linear layer alone."""
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    linear = {
        f"{name}.weight": module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and uses[id(module.weight)] == 1
    }
    for name, parameter in list(model.named_parameters()):
        if name not in names:
            continue
        parameter.requires_grad_(False)
        if name in linear:
            parametrize.register_parametrization(linear[name], "weight", LowRankUpdate(parameter, rank, alpha))


def merge_adapters(model: nn.Module) -> None:
    """Add every adapter to its matrix, then remove it."""
    for module in list(model.modules()):
        if isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)


def merge_tensors(tensors: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The same for the parameters of an adapted model, by name; `scale` is α/r."""
    middle = ".parametrizations."
    merged = {name: tensor for name, tensor in tensors.items() if middle not in name}
    for name, weight in tensors.items():
        if name.endswith(".original"):
            module, _, rest = name.removesuffix(".original").partition(middle)
            up, down = (tensors[f"{module}{middle}{rest}.0.{part}"] for part in ("up", "down"))
            merged[f"{module}.{rest}"] = torch.addmm(weight, up, down, alpha=scale)
    return merged
