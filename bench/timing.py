"""Fair timing on a machine that is not ours alone.

The contenders take turns, so that all of them meet the same machine; a turn lasts long enough to be measured. What
other processes used of the CPU during a turn is read from /proc/stat, and the turn is dropped if that was more than 8%
of the machine. The result is the median of the turns that are left. Where no turn is left, it is the median of all of
them and `clean` is False: its ratios are still fair, as every contender met the same crowd, but its seconds are not.
"""

import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MOST_FOREIGN = 0.08
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Timing:
    """One contender."""

    seconds: float
    """Of one call: the median over turns."""
    clean: bool
    foreign: float
    """The share of the machine that others used: the median over the turns that count."""


def interleave(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int = 7, turn: float = 0.3, patience: int = 2
) -> dict[str, Timing]:
    """Time the contenders in turns of at least `turn` seconds.

    A contender whose `rounds` turns were all disturbed gets as many again, up to `patience` times as many.
    """
    for run in contenders.values():
        run()
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for done in range(1, rounds * patience + 1):
        for name, run in contenders.items():
            turns[name].append(_take_turn(run, turn))
        if done >= rounds and all(_clean(taken) for taken in turns.values()):
            break
    return {name: _summarise(taken) for name, taken in turns.items()}


def _take_turn(run: Callable[[], object], least: float) -> tuple[float, float]:
    """Seconds a call, and the share of the machine that other processes used meanwhile."""
    calls, busy, own, started = 0, _busy(), _own(), time.perf_counter()
    while (elapsed := time.perf_counter() - started) < least or not calls:
        run()
        calls += 1
    elapsed = time.perf_counter() - started
    foreign = (_busy() - busy) - (_own() - own)
    return elapsed / calls, max(0.0, foreign) / elapsed / (os.cpu_count() or 1)


def _clean(turns: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [turn for turn in turns if turn[1] <= MOST_FOREIGN]


def _summarise(turns: list[tuple[float, float]]) -> Timing:
    clean = _clean(turns)
    seconds, foreign = zip(*(clean or turns), strict=True)
    return Timing(statistics.median(seconds), bool(clean), statistics.median(foreign))


def _busy() -> float:
    """Seconds of CPU that the whole machine has used so far."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _own() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
