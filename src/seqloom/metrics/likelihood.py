"""How well text is predicted.

perplexity = exp(−Σ log P / tokens)        depends on what the tokens are
bits per byte = −Σ log₂ P / bytes          does not: models with different tokenisers can be compared
"""

import math
from collections.abc import Sequence

import numpy as np

from seqloom.metrics.measure import Measure, Rows

_MOST = 700.0  # e to a higher power is no float


def exponentiate(loss: float) -> float:
    """The perplexity of a mean loss, in natural logarithms."""
    return math.exp(min(loss, _MOST))


def measure_perplexity(name: str, log_probabilities: Sequence[float], tokens: Sequence[int]) -> Measure:
    """Perplexity over the tokens of all texts."""
    return Measure(name, _pair(log_probabilities, tokens), lambda rows: exponentiate(_loss(rows)))


def measure_bits_per_byte(log_probabilities: Sequence[float], sizes: Sequence[int]) -> Measure:
    """Bits per byte over all texts."""
    return Measure("bits_per_byte", _pair(log_probabilities, sizes), lambda rows: _loss(rows) / math.log(2))


def _pair(log_probabilities: Sequence[float], counts: Sequence[int]) -> Rows:
    return np.stack([np.asarray(log_probabilities, np.float64), np.asarray(counts, np.float64)], 1)


def _loss(rows: Rows) -> float:
    total, count = rows.sum(0)
    return float(-total / count) if count else 0.0
