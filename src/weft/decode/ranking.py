"""What hypotheses are ranked by (Wu et al. 2016, §7).

    s(Y, X) = log P(Y | X) / lp(Y) + cp(X, Y)
    lp(Y) = ((5 + |Y|) / (5 + 1))^α        cp(X, Y) = β Σ_i log min(Σ_j a_ij, 1)

|Y| counts what was predicted, the end included; a_ij is how much target token j looked at source token i.
"""

import torch
from torch import Tensor


def penalise_length(total: float, length: int, alpha: float) -> float:
    """Log P / lp."""
    divisor: float = ((5.0 + length) / 6.0) ** alpha
    return total / divisor


def bound_score(total: float, length: int, longest: int, alpha: float) -> float:
    """The most that a hypothesis of this length can still come to: probability 1 from here on, and full coverage."""
    return max(penalise_length(total, length + 1, alpha), penalise_length(total, max(longest, length + 1), alpha))


def penalise_coverage(coverage: Tensor, beta: float) -> Tensor:
    """β Σ_i log min(coverage_i, 1), over the last dimension."""
    return beta * coverage.clamp(torch.finfo(coverage.dtype).tiny, 1.0).log().sum(-1)
