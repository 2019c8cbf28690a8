"""Fair timing on a machine that is not ours alone.

The contenders take turns, so that all of them meet the same machine; a turn lasts long enough to be measured. What
other processes used of the CPU during a turn is read from /proc/stat, and the turn is dropped if that was more than 8%
of the machine. The result is the median over the turns that are left. Where a contender has none left, all are judged
by the CPU time they used themselves, which a crowd lengthens far less than it lengthens the wait; threads that wait for
each other use CPU, too, so on a busy machine only one thread gives a fair figure.
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
    """Of one call."""
    clean: bool
    """Whether these are seconds on the clock; else they are seconds of CPU."""
    foreign: float
    """The share of the machine that others used meanwhile."""

    def __str__(self) -> str:
        return f"{self.seconds * 1000:,.0f} ms{'' if self.clean else ' of CPU'}"


@dataclass(frozen=True)
class Turn:
    """Seconds of one call in a turn, and what others used of the machine meanwhile."""

    wall: float
    cpu: float
    foreign: float


def interleave(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int = 5, turn: float = 0.3, patience: int = 2
) -> dict[str, Timing]:
    """Time the contenders in turns of at least `turn` seconds.

    Where all the `rounds` of a contender were disturbed, there are more, up to `patience` times as many.
    """
    for run in contenders.values():
        run()
    turns: dict[str, list[Turn]] = {name: [] for name in contenders}
    for done in range(1, rounds * patience + 1):
        for name, run in contenders.items():
            turns[name].append(take_turn(run, turn))
        if done >= rounds and all(keep_clean(taken) for taken in turns.values()):
            break
    return judge(turns)


def judge(turns: Mapping[str, list[Turn]]) -> dict[str, Timing]:
    """All by the clock, or all by the CPU they used."""
    clean = all(keep_clean(taken) for taken in turns.values())
    return {name: _summarise(keep_clean(taken) if clean else taken, clean) for name, taken in turns.items()}


def take_turn(run: Callable[[], object], least: float) -> Turn:
    """Call it again and again for so many seconds."""
    calls, busy, own, started = 0, measure_machine(), _own(), time.perf_counter()
    while time.perf_counter() - started < least or not calls:
        run()
        calls += 1
    wall, cpu = time.perf_counter() - started, _own() - own
    foreign = max(0.0, measure_machine() - busy - cpu) / wall / (os.cpu_count() or 1)
    return Turn(wall / calls, cpu / calls, foreign)


def keep_clean(turns: list[Turn]) -> list[Turn]:
    """The turns in which others left the machine alone."""
    return [turn for turn in turns if turn.foreign <= MOST_FOREIGN]


def _summarise(turns: list[Turn], clean: bool) -> Timing:
    seconds = statistics.median(turn.wall if clean else turn.cpu for turn in turns)
    return Timing(seconds, clean, statistics.median(turn.foreign for turn in turns))


def measure_machine() -> float:
    """Seconds of CPU that the whole machine has used so far."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _own() -> float:
    """Seconds of CPU that this process and the children it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
