"""A learned mixture of a network's layers: γ Σ_l softmax(w)_l h_l. Peters et al. 2018, eq. 1."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.errors import ShapeError


class ScalarMix(nn.Module):
    """One weight a layer, one scale for all."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: tuple[Float[Tensor, "*N D"], ...]) -> Float[Tensor, "*N D"]:
        """The mixture; it starts as the mean."""
        if len(layers) != len(self.weights):
            raise ShapeError(f"layers holds {len(layers)} tensors but the mix was built for {len(self.weights)}")
        shares = self.weights.softmax(0)
        return self.scale * torch.einsum("l,l...->...", shares, torch.stack(layers))
