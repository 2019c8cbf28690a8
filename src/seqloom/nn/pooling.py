"""Many vectors into one: attention pooling with a learned query, and the plain summaries.

a_j = W_a·h_j        α = softmax(a)        h̄ = Σ_j α_j h_j
"""

from typing import Literal, assert_never

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqloom.nn.attention import Dot, attend, attention_weights
from seqloom.nn.packing import first_real, masked_mean

Pooling = Literal["attention", "mean", "max", "first"]


class Pool(nn.Module):
    """A row of states becomes one vector; padding has no part in it, and an empty row gives zeros."""

    def __init__(self, kind: Pooling, dim: int) -> None:
        super().__init__()
        self.kind = kind
        self.score = Dot()
        self.query = nn.Parameter(torch.zeros(1, dim)) if kind == "attention" else None  # starts as the mean

    def forward(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
        """Summarise each row."""
        if not mask.shape[1]:
            return states.new_zeros(states.shape[0], states.shape[2])
        match self.kind:
            case "attention":
                query = self._expand_query(states)
                return attend(query, states, states, mask.unsqueeze(1), score=self.score).squeeze(1)
            case "mean":
                return masked_mean(states, mask)
            case "max":
                highest = states.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
                return highest.masked_fill(~mask.any(1, keepdim=True), 0.0)
            case "first":
                return first_real(states, mask)
            case _ as unreachable:
                assert_never(unreachable)

    def weights(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1 1 T"]:
        """The attention weights of each row's tokens."""
        weights = attention_weights(self._expand_query(states), states, mask.unsqueeze(1), score=self.score)
        return weights.unsqueeze(1)

    def _expand_query(self, states: Tensor) -> Float[Tensor, "B 1 D"]:
        assert self.query is not None
        return self.query.expand(states.shape[0], 1, -1)
