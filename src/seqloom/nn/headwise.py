"""Linear maps of heads, each with a matrix of its own.

    y_h = W_h x_h + b_h        h = 1 … H

`HeadwiseLinear` maps what the heads have already, such as the queries and keys that a score function compares.
`ChunkedLinear` makes them: it splits the embedding into H equal chunks, and head h sees chunk h alone. That is a linear
layer whose matrix is block-diagonal, with 1/H of the weights:

    [q_1; q_2] = [W_1  0 ] [x_1]
                 [ 0  W_2] [x_2]
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.errors import ShapeError


class HeadwiseLinear(nn.Module):
    """x W_hᵀ + b_h for each head."""

    def __init__(self, num_heads: int, input_dim: int, output_dim: int, *, bias: bool = True) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(input_dim)  # as in `nn.Linear`
        self.weight = nn.Parameter(torch.empty(num_heads, output_dim, input_dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_heads, 1, output_dim).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Float[Tensor, "*B H N I"]) -> Float[Tensor, "*B H N O"]:
        """The vectors of each head, mapped by its matrix."""
        out = x @ self.weight.transpose(1, 2)
        return out if self.bias is None else out + self.bias


class ChunkedLinear(HeadwiseLinear):
    """What each head makes of its own chunk of the embedding: queries, keys or values, or several of them."""

    def __init__(self, input_dim: int, num_heads: int, head_dim: int, *, parts: int = 1, bias: bool = True) -> None:
        """`parts`: 1 for queries, 2 for keys and values, 3 for all."""
        super().__init__(num_heads, divide(input_dim, num_heads, "width", "num_heads"), parts * head_dim, bias=bias)
        self.parts = parts

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N E"]:
        """The first part of all heads, then the second, and so on, as a linear layer would give them."""
        heads = super().forward(x.reshape(-1, len(self.weight), self.weight.shape[2]).transpose(0, 1))
        by_part = heads.unflatten(2, (self.parts, -1)).permute(1, 2, 0, 3)  # (N, parts, H, K)
        return by_part.flatten(1).unflatten(0, x.shape[:-1])


def divide(whole: int, parts: int, whole_name: str, parts_name: str) -> int:
    """whole / parts, which must have no remainder."""
    if whole % parts:
        raise ShapeError(f"{whole_name} = {whole} is not divisible by {parts_name} = {parts}")
    return whole // parts
