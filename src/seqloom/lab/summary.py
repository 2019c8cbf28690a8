"""Numbers of several repetitions: their mean, and the interval that holds the true mean 19 times out of 20.

    x̄ ± t₀.₉₇₅,ₙ₋₁ · s / √n                                  Student 1908

The numbers of repetitions with different seeds are independent. Of one repetition there is no interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Of Student's t: the 97.5% quantiles for 1, 2, … 15 degrees of freedom."""


@dataclass(frozen=True)
class Summary:
    """A mean of some repetitions, and how far it may be off."""

    mean: float
    margin: float = 0.0
    """Half of the 95% interval; 0 for one repetition."""
    count: int = 1

    def __str__(self) -> str:
        return self.spell(3)

    def spell(self, digits: int) -> str:
        """The mean with a number of digits after the point, and its margin where there is one."""
        mean, margin = (f"{value:.{digits}f}" for value in (self.mean, self.margin))
        return mean if self.count == 1 else f"{mean} ± {margin}"

    def spell_small(self) -> str:
        """A number of any size, such as 2.1e-13."""
        return f"{self.mean:.2g}" if self.count == 1 else f"{self.mean:.2g} ± {self.margin:.1g}"

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval."""
        return self.mean - self.margin, self.mean + self.margin


def summarise(values: Sequence[float]) -> Summary:
    """The mean of values and its interval."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Summary(mean)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Summary(mean, _find_quantile(count - 1) * deviation / math.sqrt(count), count)


def _find_quantile(freedom: int) -> float:
    """Beyond the table, the first terms of its expansion around the normal distribution's (Fisher & Cornish 1960)."""
    return _T[freedom - 1] if freedom <= len(_T) else 1.95996 + 2.3723 / freedom + 2.8225 / freedom**2
