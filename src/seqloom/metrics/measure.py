"""A metric: a row of numbers for each answer, and a function that makes one number of the rows.

BLEU is no mean over sentences, nor is an F1 or a correlation; but all of them are functions of a few numbers a
sentence. Kept as rows, the sentences can be drawn again or swapped between systems without scoring any text anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqloom.errors import DataError

Rows = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measure:
    """A metric of some answers, a row (N, K) a sentence."""

    name: str
    rows: Rows
    compute: Callable[[Rows], float]
    signature: str = ""
    """What else decides the value, as sacreBLEU writes it."""

    @property
    def value(self) -> float:
        """The metric of all sentences."""
        if not len(self.rows):
            raise DataError(f"{self.name}: there is nothing to score")
        return self.compute(self.rows)


@dataclass(frozen=True)
class Metric:
    """How answers are measured: by `eval`, and in validation while a model is trained."""

    name: str
    measure: Callable[[Sequence[Any], Sequence[Any]], Measure]
    """What was wanted and what was given -> the rows and the value."""
    lower_is_better: bool = False
    on_request: bool = False
    """Whether validation leaves it out unless a training is judged by it."""


def measure_share(name: str, parts: NDArray[np.generic], wholes: NDArray[np.generic]) -> Measure:
    """Σ parts / Σ wholes: an accuracy, or another share; 0 of nothing."""
    return Measure(name, np.stack([parts, wholes], 1).astype(np.float64), _share)


def _share(rows: Rows) -> float:
    part, whole = rows.sum(0)
    return float(part / whole) if whole else 0.0
