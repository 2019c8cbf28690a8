"""What the cells of bench/growth.py have found, and power laws fitted to it."""

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

POINTS = 3


class MissingError(Exception):
    """A number that was not measured yet."""


@dataclass(frozen=True)
class Fit:
    """y = factor · x^exponent: least squares over the logarithms of the largest sizes."""

    exponent: float
    factor: float
    sizes: tuple[int, ...]

    def predict(self, size: float) -> float:
        """What a size would need."""
        return float(self.factor * size**self.exponent)

    def reach(self, value: float) -> float:
        """The size at which so much is needed."""
        return float((value / self.factor) ** (1 / self.exponent))

    def __str__(self) -> str:
        return f"{self.factor:.2g} · x^{self.exponent:.2f}"


@dataclass(frozen=True)
class Line:
    """y = fixed + each · x, where a step is known to be a fixed part and one for each layer, token or weight."""

    fixed: float
    each: float

    def reach(self, value: float) -> float:
        """The size at which so much is needed."""
        return (value - self.fixed) / self.each

    def __str__(self) -> str:
        return f"{self.fixed:.2g} + {self.each:.2g} · x"


@dataclass
class Grown:
    """Cells by name: `axis/variant/size`."""

    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def sizes(self, axis: str, variant: str) -> list[int]:
        """What was measured."""
        start = f"{axis}/{variant}/"
        return sorted(int(name.removeprefix(start)) for name in self.found if name.startswith(start))

    def get(self, axis: str, variant: str, size: int, key: str) -> float:
        """One number."""
        try:
            return float(self.found[f"{axis}/{variant}/{size}"][key])
        except KeyError:
            raise MissingError(f"{axis}/{variant}/{size}") from None

    def last(self, axis: str, variant: str, key: str) -> float:
        """That of the largest size."""
        return self.get(axis, variant, max(self.sizes(axis, variant), default=0), key)

    def points(self, axis: str, variant: str, key: str) -> list[tuple[int, float]]:
        """Sizes and numbers."""
        return [(size, self.get(axis, variant, size, key)) for size in self.sizes(axis, variant)]

    def line(self, axis: str, variant: str, key: str) -> Line:
        """Through the largest sizes, too."""
        points = self.points(axis, variant, key)[-POINTS:]
        if len(points) < POINTS:
            raise MissingError(f"{axis}/{variant}")
        found = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
        return Line(found.intercept, found.slope)

    def fit(self, axis: str, variant: str, key: str) -> Fit:
        """Through the largest sizes, of which there must be as many."""
        points = [(size, value) for size, value in self.points(axis, variant, key) if value > 0][-POINTS:]
        if len(points) < POINTS:
            raise MissingError(f"{axis}/{variant}")
        line = statistics.linear_regression([math.log(x) for x, _ in points], [math.log(y) for _, y in points])
        return Fit(line.slope, math.exp(line.intercept), tuple(size for size, _ in points))


def spell_time(seconds: float) -> str:
    """A duration as people say it."""
    for unit, length in (("years", 365 * 86400.0), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.{0 if seconds >= 20 * length else 1}f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def spell_bytes(number: float) -> str:
    """Bytes as people say them."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:,.{0 if number >= 20 * size else 1}f} {unit}"
    return f"{number:.0f} bytes"


def spell_size(number: float) -> str:
    """A size with two digits: nobody knows more of what is extrapolated."""
    if number >= 1e15:
        return f"10^{math.floor(math.log10(number))}"
    rounded = float(f"{number:.2g}")
    for name, size in (("billion", 1e9), ("million", 1e6)):
        if rounded >= size:
            return f"{rounded / size:,g} {name}"
    return f"{rounded:,.0f}"
