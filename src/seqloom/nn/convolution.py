"""Gated convolutions: each output depends on the k inputs around its position, by the same kernel everywhere.

    y_t = (Σ_j W_j x_{t+j} + b) ⊙ σ(Σ_j V_j x_{t+j} + c)                  Dauphin et al. 2017; Gehring et al. 2017, §3.2

A causal layer reaches k − 1 positions to the left, a backward layer k − 1 to the right, a centred layer both ways; a
sequence is padded with zeros at its ends. The k inputs are concatenated, so that a convolution is one matrix product.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.cache import LayerState
from seqloom.nn.packing import Packing
from seqloom.types import Direction


class GatedConvolution(nn.Module):
    """One convolution and its gate."""

    def __init__(self, input_dim: int, output_dim: int, kernel: int, direction: Direction) -> None:
        super().__init__()
        self.kernel = kernel
        left = {"forward": kernel - 1, "backward": 0, "both": (kernel - 1) // 2}[direction]
        self.offsets = range(-left, kernel - left)
        self.value = nn.Linear(kernel * input_dim, output_dim)
        self.gate = nn.Linear(kernel * input_dim, output_dim)

    def forward(self, x: Float[Tensor, "*N D"], tokens: Packing | LayerState) -> Float[Tensor, "*N E"]:
        """Whole sequences, packed; or, if causal, new tokens of each row, (B, T, D), after the k − 1 inputs kept."""
        if isinstance(tokens, Packing):
            return self._gate(torch.cat([tokens.shift(x, offset) for offset in self.offsets], dim=1))
        inputs = torch.cat([tokens.kept, x], dim=1)
        tokens.kept = inputs[:, x.shape[1] :]
        return self._gate(inputs.unfold(1, self.kernel, 1).transpose(2, 3).flatten(2))  # (B, T, kernel·D)

    def start(self, batch_size: int) -> Float[Tensor, "B P D"]:
        """The inputs before the first token: zeros."""
        weight = self.value.weight
        return weight.new_zeros(batch_size, self.kernel - 1, weight.shape[1] // self.kernel)

    def _gate(self, windows: Tensor) -> Tensor:
        return self.value(windows) * self.gate(windows).sigmoid()
