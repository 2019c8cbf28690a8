"""Numbers about the server, in Prometheus's text format (version 0.0.4).

Written by hand: three kinds of numbers and one format, of which a hundred lines are all that a server needs, where the
library brings a registry for the whole process.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Numbers:
    """Counters and histograms at one moment, which another process can send."""

    counters: dict[str, dict[Labels, float]]
    histograms: dict[str, dict[Labels, list[float]]]
    bounds: dict[str, tuple[float, ...]]
    about: dict[str, str]


class Metrics:
    """Counters and histograms; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, list[float]]] = {}
        self._bounds: dict[str, tuple[float, ...]] = {}
        self._about: dict[str, str] = {}

    def count(self, name: str, about: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._about[name] = about
            own = self._counters.setdefault(name, {})
            key = tuple(sorted(labels.items()))
            own[key] = own.get(key, 0) + amount

    def observe(self, name: str, about: str, value: float, bounds: tuple[float, ...], **labels: str) -> None:
        """Add a value to a histogram: how many were at most as large as each bound, their sum and their number."""
        with self._lock:
            self._about[name], self._bounds[name] = about, bounds
            key = tuple(sorted(labels.items()))
            own = self._histograms.setdefault(name, {}).setdefault(key, [0.0] * (len(bounds) + 2))
            own[bisect_left(bounds, value)] += 1
            own[-1] += value

    def total(self, name: str, **labels: str) -> float:
        """The sum of a counter over everything with these labels."""
        with self._lock:
            own = self._counters.get(name, {})
            return sum(value for key, value in own.items() if {*labels.items()} <= {*key})

    def read(self) -> Numbers:
        """All numbers of this moment."""
        with self._lock:
            return deepcopy(Numbers(self._counters, self._histograms, self._bounds, self._about))

    def add(self, numbers: Numbers, **labels: str) -> None:
        """Take in the numbers of another process, with more labels that tell them from ours."""
        more = tuple(labels.items())
        with self._lock:
            self._about |= numbers.about
            self._bounds |= numbers.bounds
            for name, values in numbers.counters.items():
                self._counters.setdefault(name, {}).update({(*key, *more): value for key, value in values.items()})
            for name, series in numbers.histograms.items():
                self._histograms.setdefault(name, {}).update({(*key, *more): value for key, value in series.items()})

    def observe_batch(self, lines: int, size: int, seconds: float) -> None:
        """Note a step of a batch."""
        self.observe("seqloom_batch_lines", "Lines that were computed together in one step.", lines, SIZES)
        self.observe("seqloom_batch_size", "Tokens, or characters, of the lines of one step.", size, SIZES)
        self.observe("seqloom_step_seconds", "How long a step took.", seconds, SECONDS)

    def write(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """All numbers; `gauges` are those of this moment, by name: what they are, and how much."""
        lines: list[str] = []
        for name, (about, value) in gauges.items():
            lines += [*_head(name, about, "gauge"), f"{name} {_number(value)}"]
        with self._lock:
            for name, values in self._counters.items():
                lines += _head(name, self._about[name], "counter")
                lines += [f"{name}{_label(labels)} {_number(value)}" for labels, value in values.items()]
            for name, series in self._histograms.items():
                lines += _head(name, self._about[name], "histogram")
                for labels, buckets in series.items():
                    total = 0.0
                    for bound, amount in zip((*self._bounds[name], float("inf")), buckets, strict=False):
                        total += amount
                        edge = "+Inf" if bound == float("inf") else _number(bound)
                        lines.append(f"{name}_bucket{_label((*labels, ('le', edge)))} {_number(total)}")
                    lines += [f"{name}_sum{_label(labels)} {_number(buckets[-1])}"]
                    lines += [f"{name}_count{_label(labels)} {_number(total)}"]
        return "\n".join(lines) + "\n"


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _label(labels: Iterable[tuple[str, str]]) -> str:
    def escape(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    written = ",".join(f'{name}="{escape(value)}"' for name, value in labels)
    return f"{{{written}}}" if written else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
