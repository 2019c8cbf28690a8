"""What hypotheses are ranked by: their likelihood, for their length, and for how much of the source they looked at.

    s(Y, X) = log P(Y | X) / |Y|^α + β Σ_i log min(Σ_j a_ij, 1)

|Y| counts what was predicted, the end included; a_ij is how much target token j looked at source token i. The length is
judged as fairseq, Hugging Face and CTranslate2 do: with α = 1 by the mean over tokens. Wu et al. 2016, §7, whose the
coverage is, divide by ((5 + |Y|) / 6)^α, which at α = 1 still favours short answers.
"""

import torch
from torch import Tensor


def penalise_length(total: float, length: int, alpha: float) -> float:
    """Log P / |Y|^α."""
    divisor: float = max(1, length) ** alpha
    return total / divisor


def bound_score(total: float, length: int, longest: int, alpha: float) -> float:
    """The most that a hypothesis of this length can still come to: probability 1 from here on, and full coverage."""
    return max(penalise_length(total, length + 1, alpha), penalise_length(total, max(longest, length + 1), alpha))


def penalise_coverage(coverage: Tensor, beta: float) -> Tensor:
    """β Σ_i log min(coverage_i, 1), over the last dimension."""
    return beta * coverage.clamp(torch.finfo(coverage.dtype).tiny, 1.0).log().sum(-1)
