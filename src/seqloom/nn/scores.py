"""How well does a key answer a query? Four score functions, one shape: queries × keys → scores.

With query q and key k (in the recurrent reading: decoder state h and encoder state s):

    dot           q·k                                  Luong et al. 2015, §3.1
    scaled dot    q·k / √d_k                           Vaswani et al. 2017, §3.2.1
    bilinear      qᵀ W k                               Luong et al. 2015, §3.1 ("general")
    additive      vᵀ tanh(W_q q + W_k k)               Bahdanau et al. 2015, §A.1.2

The additive form is the same as wᵀ tanh(W₁ [q; k]): W₁ is W_q and W_k side by side.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

Queries = Float[Tensor, "*B Q D"]
Keys = Float[Tensor, "*B S E"]
Scores = Float[Tensor, "*B Q S"]


class Dot(nn.Module):
    """q·k."""

    def forward(self, query: Queries, key: Keys) -> Scores:
        """Score every query against every key."""
        return query @ key.transpose(-2, -1)


class ScaledDot(nn.Module):
    """q·k / √d_k: the variance of a sum of d_k products is undone, so the softmax keeps its slope."""

    def forward(self, query: Queries, key: Keys) -> Scores:
        """Score every query against every key."""
        return (query / math.sqrt(key.shape[-1])) @ key.transpose(-2, -1)


class Bilinear(nn.Module):
    """qᵀ W k: a learned similarity; query and key may differ in width."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(query_dim, key_dim)))

    def forward(self, query: Queries, key: Keys) -> Scores:
        """Score every query against every key."""
        return query @ self.weight @ key.transpose(-2, -1)


class Additive(nn.Module):
    """vᵀ tanh(W_q q + W_k k): a one-hidden-layer network looks at both."""

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden_dim)
        self.key = nn.Linear(key_dim, hidden_dim, bias=False)
        self.vector = nn.Linear(hidden_dim, 1, bias=False)

    def forward(self, query: Queries, key: Keys) -> Scores:
        """Score every query against every key."""
        mixed = self.query(query).unsqueeze(-2) + self.key(key).unsqueeze(-3)  # (*B, Q, S, hidden)
        scores: Tensor = self.vector(torch.tanh(mixed)).squeeze(-1)
        return scores


Score = Dot | ScaledDot | Bilinear | Additive
