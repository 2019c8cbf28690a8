"""Convolutions: each output depends on k inputs around its position, by the same kernel everywhere.

    gated      y_t = (Σ_j W_j x_{t+jd} + b) ⊙ σ(Σ_j V_j x_{t+jd} + c)     Dauphin et al. 2017; Gehring et al. 2017, §3.2
    ungated    y_t = max(0, Σ_j W_j x_{t+jd} + b)

The gate depends on the inputs, so a gated kernel weighs the same neighbours differently from place to place. Only an
ungated one is static.

The k inputs are d positions apart, the dilation. A causal layer reaches (k − 1)d positions to the left, a backward one
as far to the right, a centred one both ways; a sequence is padded with zeros at its ends. Layer l = 0, 1, … of a stack
has the dilation b^l (van den Oord et al. 2016, §2.1). After n layers a position has seen

    1 + (k − 1)(1 + b + … + b^{n−1}) inputs:    n(k − 1) + 1 for b = 1,    k^n for b = k

so connecting the ends of m positions takes (m − 1)/(k − 1) layers of contiguous kernels, and log_k m of dilated ones.
For b > k, some of the inputs between are never seen.

The k inputs are concatenated, so that a convolution is one matrix product.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.cache import LayerState
from seqloom.nn.packing import Packing
from seqloom.types import Direction


class Convolution(nn.Module):
    """One convolution, and max(0, ·)."""

    def __init__(self, input_dim: int, output_dim: int, kernel: int, direction: Direction, dilation: int = 1) -> None:
        super().__init__()
        self.kernel, self.dilation = kernel, dilation
        left = {"forward": kernel - 1, "backward": 0, "both": (kernel - 1) // 2}[direction]
        self.offsets = range(-left * dilation, (kernel - left) * dilation, dilation)
        self.value = nn.Linear(kernel * input_dim, output_dim)

    @property
    def reach(self) -> int:
        """The distance between the first and the last of the k inputs."""
        return (self.kernel - 1) * self.dilation

    def forward(self, x: Float[Tensor, "*N D"], tokens: Packing | LayerState) -> Float[Tensor, "*N E"]:
        """Whole sequences, packed; or, if causal, new tokens of each row, (B, T, D), after the (k − 1)d inputs kept."""
        if isinstance(tokens, Packing):
            return self.apply_kernel(torch.cat([tokens.shift(x, offset) for offset in self.offsets], dim=1))
        inputs = torch.cat([tokens.kept, x], dim=1)
        tokens.kept = inputs[:, x.shape[1] :]
        seen = inputs.unfold(1, self.reach + 1, 1)  # (B, T, D, reach + 1)
        if self.dilation > 1:
            seen = seen[..., :: self.dilation]
        return self.apply_kernel(seen.transpose(2, 3).flatten(2))

    def apply_kernel(self, windows: Float[Tensor, "*N K"]) -> Float[Tensor, "*N E"]:
        """The outputs, from the k inputs of each, concatenated."""
        return F.relu(self.value(windows))

    def start(self, batch_size: int) -> Float[Tensor, "B P D"]:
        """The inputs before the first token: zeros."""
        weight = self.value.weight
        return weight.new_zeros(batch_size, self.reach, weight.shape[1] // self.kernel)


class GatedConvolution(Convolution):
    """One convolution and its gate."""

    def __init__(self, input_dim: int, output_dim: int, kernel: int, direction: Direction, dilation: int = 1) -> None:
        super().__init__(input_dim, output_dim, kernel, direction, dilation)
        self.gate = nn.Linear(kernel * input_dim, output_dim)

    def apply_kernel(self, windows: Float[Tensor, "*N K"]) -> Float[Tensor, "*N E"]:
        """The outputs, from the k inputs of each, concatenated."""
        return self.value(windows) * self.gate(windows).sigmoid()
