"""Running all trainings of a plan: one after the other here, each with the whole machine, or on a Ray cluster.

Wherever a training runs, it leaves its result in the folder of the comparison; this is only told who is at work, and
reads from the runs' own logs how far each has come. What has a result is not trained again.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Any

from seqloom.lab.compare.plan import Plan, Trial
from seqloom.lab.compare.trial import ShouldStop, fail, find_outcome, read_outcome, run_trial
from seqloom.runs.log import LogReader

PAUSE = 0.2
"""Seconds between two looks at who is at work."""
Work = Callable[[Trial], None]
"""What a process does with a training."""
Engine = Callable[[Sequence[Trial], ShouldStop], Iterator[Sequence[Trial]]]
"""Starts trainings and yields, every moment, those that are at work; it ends when all have ended or one stops it."""


@dataclass(frozen=True)
class Situation:
    """How far a comparison has come."""

    done: int
    """Trainings that have ended, also in earlier starts."""
    total: int
    share: float
    """How much of everything is done, from 0 to 1."""
    running: str
    """Which training is at work, and how far it is."""
    seconds_left: float | None
    """None where nothing is known yet."""
    news: str = ""
    """A training that has just ended."""


def run_all(plan: Plan, engine: Engine, show: Callable[[Situation], None], should_stop: ShouldStop) -> bool:
    """Train what has no result yet; whether all came to an end."""
    left = [trial for trial in plan.trials if find_outcome(trial) is None]
    for trial in left:
        trial.outcome.unlink(missing_ok=True)  # of a failure, or of something else that was measured
    watch = _Watch(plan.trials, left)
    show(watch.look(left[:1]))
    for running in engine(left, should_stop):
        show(watch.look(running))
    show(watch.look(()))
    return not should_stop() and all(read_outcome(trial) is not None for trial in plan.trials)


def train_here(work: Work = run_trial) -> Engine:
    """An engine that gives each training a process of its own, one after the other."""

    def engine(trials: Sequence[Trial], should_stop: ShouldStop) -> Iterator[Sequence[Trial]]:
        context = _choose_context()
        for trial in trials:
            if should_stop():
                return
            process = context.Process(target=_live_with_parent, args=(work, trial))
            process.start()
            asked = False
            try:
                while process.is_alive():
                    yield (trial,)
                    process.join(PAUSE)
                    if should_stop() and not asked:
                        process.terminate()  # asks it to save and end
                        asked = True
            finally:
                if process.is_alive():
                    process.kill()
                process.join()
            if not asked and read_outcome(trial) is None:
                fail(trial, explain_end(process.exitcode))

    return engine


def _choose_context() -> Any:
    """Processes from a server that has imported everything once, where the system has such; new ones elsewhere."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([run_trial.__module__])
    return context


def explain_end(code: int | None) -> str:
    """Why a process may have ended without a result."""
    if code is not None and code < 0:
        return f"its process was killed by signal {-code}, most likely for lack of memory"
    return f"its process ended with code {code}"


def _live_with_parent(work: Work, trial: Trial) -> None:
    """Do the work, but end at once if the process that started this one is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow(sentinel: int = parent.sentinel) -> None:
        wait([sentinel])
        os._exit(1)

    Thread(target=follow, daemon=True).start()
    work(trial)


class _Watch:
    """Reads from logs how far trainings are, and forecasts the rest."""

    def __init__(self, trials: Sequence[Trial], left: Sequence[Trial]) -> None:
        self._trials, self._left = trials, {trial.folder: trial for trial in left}
        self._logs = {trial.folder: LogReader(Path(trial.folder) / "speed.jsonl") for trial in left}
        self._spent = dict.fromkeys(self._left, 0.0)
        self._started = self._last = time.monotonic()

    def look(self, running: Sequence[Trial]) -> Situation:
        """How far everything is now."""
        ended = [trial for trial in self._left.values() if read_outcome(trial) is not None]
        for trial in ended:
            del self._left[trial.folder]
            self._spent[trial.folder], self._last = 1.0, time.monotonic()
        running = [trial for trial in running if trial.folder in self._left]
        for trial in running:
            for line in self._logs[trial.folder].read().lines:
                self._spent[trial.folder] = min(1.0, float(line.get("spent", 0.0)))
        total = len(self._trials)
        return Situation(
            total - len(self._left),
            total,
            1.0 - (len(self._spent) - sum(self._spent.values())) / max(1, total),
            " and ".join(f"{trial.name} ({self._spent[trial.folder]:.0%})" for trial in running),
            self._forecast(len(running)),
            "; ".join(_tell(trial) for trial in ended),
        )

    def _forecast(self, running: int) -> float | None:
        """By the time that a training took so far or, of the first ones, by how far they are."""
        now, done = time.monotonic(), len(self._spent) - len(self._left)
        if done:
            each = (self._last - self._started) / done
            return max(each * len(self._left) - (now - self._last), each * (len(self._left) - running), 0.0)
        spent = sum(self._spent.values())
        return (now - self._started) * (len(self._spent) / spent - 1.0) if spent > 0.02 else None


def _tell(trial: Trial) -> str:
    outcome = read_outcome(trial) or {}
    if "failed" in outcome:
        return f"{trial.name}: failed: {outcome['failed'].splitlines()[0]}"
    return f"{trial.name}: {outcome['found']['steps']:,} steps in {outcome['found']['seconds']:.0f} s"
