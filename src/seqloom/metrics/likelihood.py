"""How well text is predicted.

perplexity = exp(−Σ log P / tokens)        depends on what the tokens are
bits per byte = −Σ log₂ P / bytes          does not: models with different tokenisers can be compared
"""

import math
from collections.abc import Sequence

import numpy as np

from seqloom.metrics.measure import Measure, Metric, Rows

_MOST = 700.0  # e to a higher power is no float


def exponentiate(loss: float) -> float:
    """The perplexity of a mean loss, in natural logarithms."""
    return math.exp(min(loss, _MOST))


def measure_perplexity(wanted: Sequence[tuple[int, int]], given: Sequence[float], name: str = "perplexity") -> Measure:
    """Perplexity over the tokens of all texts: `wanted` has the tokens and bytes of each, `given` its log P."""
    return Measure(name, _pair(given, [tokens for tokens, _ in wanted]), lambda rows: exponentiate(_loss(rows)))


def measure_bits_per_byte(wanted: Sequence[tuple[int, int]], given: Sequence[float]) -> Measure:
    """Bits per byte over all texts."""
    rows = _pair(given, [size for _, size in wanted])
    return Measure("bits_per_byte", rows, lambda rows: _loss(rows) / math.log(2))


PERPLEXITY = Metric("perplexity", measure_perplexity, lower_is_better=True)
BITS_PER_BYTE = Metric("bits_per_byte", measure_bits_per_byte, lower_is_better=True, on_request=True)
PSEUDO_PERPLEXITY = Metric(
    "pseudo_perplexity",
    lambda wanted, given: measure_perplexity(wanted, given, "pseudo_perplexity"),
    lower_is_better=True,
    on_request=True,
)


def _pair(log_probabilities: Sequence[float], counts: Sequence[int]) -> Rows:
    return np.stack([np.asarray(log_probabilities, np.float64), np.asarray(counts, np.float64)], 1)


def _loss(rows: Rows) -> float:
    total, count = rows.sum(0)
    return float(-total / count) if count else 0.0
