"""How an engine uses the cores: a grid of settings for each, of which the best counts, and is named.

W×T is W workers of T threads each; “active” is OMP_WAIT_POLICY, with which threads wait for each other without sleep.
"""

import platform
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from engines import Engine
from timing import Timing


class Setting(NamedTuple):
    """An engine, what it computes in, and how it uses the cores."""

    engine: str
    precision: str
    workers: int
    threads: int
    waiting: str = "PASSIVE"

    @property
    def name(self) -> str:
        """All of it."""
        return " ".join((self.engine, self.precision, self.plan, self.waiting))

    @property
    def plan(self) -> str:
        """Workers × threads."""
        return f"{self.workers}×{self.threads}"

    @property
    def contender(self) -> str:
        """What the table has a column for."""
        return f"{self.engine} {self.precision}"

    @classmethod
    def parse(cls, name: str) -> "Setting":
        """From its name."""
        engine, precision, plan, waiting = name.rsplit(" ", 3)
        workers, threads = map(int, plan.split("×"))
        return cls(engine, precision, workers, threads, waiting)

    def __str__(self) -> str:
        return self.plan + (", active" if self.waiting == "ACTIVE" else "")


Best = dict[str, tuple[float, Setting]]
"""By contender: its speed in its best setting."""


def list_plans(cores: int) -> list[tuple[int, int]]:
    """One core, all cores for one product, and a worker on each."""
    return sorted({(1, 1), (1, cores), (cores, 1)})


def list_grid(engine: str, precisions: Iterable[str], cores: int, *waits: str) -> list[Setting]:
    """Each precision in each plan; `waits`: how threads that wait for others do so."""
    ways = [(plan, waiting) for plan in list_plans(cores) for waiting in waits if plan != (1, 1) or waiting == waits[0]]
    return [Setting(engine, kind, *plan, waiting) for kind in precisions for plan, waiting in ways]


def open_engines(settings: Iterable[Setting], turn: float) -> dict[str, Engine]:
    """A process for each setting."""
    more = ("--turn", str(turn))
    return {one.name: Engine(one.name, one.threads, *more, waiting=one.waiting) for one in settings}


def find_best(times: Mapping[str, Timing], work: int) -> Best:
    """The best setting of each contender, when one call does so much work."""
    best: Best = {}
    for name, time in times.items():
        own = Setting.parse(name)
        best[own.contender] = max(best.get(own.contender, (0.0, own)), (work / time.seconds, own))
    return best


def draw_cells(best: Best, times: Mapping[str, Timing]) -> list[str]:
    """Speeds, and in brackets their settings."""
    unit = "" if all(time.clean for time in times.values()) else " of CPU"
    return [f"{speed:,.0f}{unit} ({own})" for speed, own in best.values()]


def describe_machine() -> str:
    """The instructions that kernels of few bits need, as this processor has them."""
    from seqloom.native.library import describe

    return f"kernels {describe().level}, {platform.machine()}"
