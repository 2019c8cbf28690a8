"""Conducting an experiment: each unit is measured once for each seed, kept, and never measured again.

    runs/lab/order/units/rotary.seed-1.json      the result of a unit, and the parameters it was measured with
    runs/lab/order/units/rotary.seed-1/          what the unit made, such as a run

An experiment that was interrupted goes on where it was. A result that was measured with other parameters is measured
anew. A unit computes on one thread, so that its result does not depend on the machine's cores; where units train
models, several of them run at once, each in a process of its own.
"""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any

import torch

from seqloom.errors import RunError
from seqloom.files import write_whole
from seqloom.lab.catalogue import find_experiment
from seqloom.lab.experiment import Experiment, Found, Parameters, Results

Say = Callable[[int, int, str], None]
"""Called with the number of units that are done, of all units, and a line about the last one."""


@dataclass(frozen=True)
class _Unit:
    """One unit with one seed."""

    experiment: str
    parameters: dict[str, Any]
    name: str
    seed: int
    folder: Path
    """Of all units."""

    @property
    def path(self) -> Path:
        """The file of the result."""
        return self.folder / f"{self.name}.seed-{self.seed}.json"

    def read(self) -> Found | None:
        """The result, if it was measured with the same parameters."""
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            found: Found = kept["found"]
            return found if kept["parameters"] == self.parameters else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def measure(self) -> Found:
        """Measure it and keep the result."""
        experiment, own = find_experiment(self.experiment), self.path.with_suffix("")
        if self.path.exists():  # a result that does not fit, and what was made for it
            self.path.unlink()
            shutil.rmtree(own, ignore_errors=True)
        marker = own / "parameters.json"
        if own.exists() and _read(marker) != self.parameters:
            shutil.rmtree(own)
        own.mkdir(parents=True, exist_ok=True)
        write_whole(marker, _write(self.parameters))
        with _one_thread(), torch.random.fork_rng():
            torch.manual_seed(self.seed)
            given = experiment.parameters.model_validate_json(json.dumps(self.parameters))
            found = experiment.measure(given, self.name, self.seed, own)
        kept = {"unit": self.name, "seed": self.seed, "parameters": self.parameters, "found": found}
        write_whole(self.path, _write(kept))
        if {*own.iterdir()} == {marker}:
            shutil.rmtree(own)
        read: Found = json.loads(_write(found))  # as it will be read the next time
        return read


def conduct(
    experiment: Experiment[Any],
    parameters: Parameters,
    seeds: Sequence[int],
    folder: Path,
    *,
    jobs: int | None = None,
    say: Say = lambda done, total, text: None,
) -> Results:
    """Measure what is not measured yet, on as many cores as there are unless `jobs` says otherwise."""
    units = [
        _Unit(experiment.name, parameters.model_dump(mode="json"), name, seed, folder / "units")
        for seed in seeds
        for name in experiment.list_units(parameters)
    ]
    (folder / "units").mkdir(parents=True, exist_ok=True)
    found = {unit.path: known for unit in units if (known := unit.read()) is not None}
    left = [unit for unit in units if unit.path not in found]
    if found and left:
        say(len(found), len(units), f"{len(found)} of {len(units)} were measured before")
    jobs = min(len(left), _count_cores() if jobs is None else jobs) if experiment.trains else 1
    for unit, result, seconds in _measure_all(left, jobs):
        found[unit.path] = result
        seed = f", seed {unit.seed}" if len(seeds) > 1 else ""
        say(len(found), len(units), f"{unit.name}{seed}: {seconds:.0f} s")
    names = dict.fromkeys(unit.name for unit in units)
    return Results({name: [found[unit.path] for unit in units if unit.name == name] for name in names})


def _measure_all(units: Sequence[_Unit], jobs: int) -> Iterator[tuple[_Unit, Found, float]]:
    if jobs <= 1:
        for unit in units:
            yield unit, *_time(unit)
        return
    others = {*active_children()}
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_end_with_parent) as pool:
        waiting: dict[Future[tuple[Found, float]], _Unit] = {pool.submit(_time, unit): unit for unit in units}
        try:
            for done in as_completed(waiting):
                yield waiting[done], *done.result()
        except BrokenProcessPool:
            raise RunError(
                "a process that measured was killed, most often for want of memory; the same command goes on from "
                "there, and --jobs 1 needs the least"
            ) from None
        except BaseException:  # whoever stops an experiment does not wait for its models; the next start goes on
            for process in {*active_children()} - others:
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """A process that measures is stopped by the one that started it, and ends with it even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _time(unit: _Unit) -> tuple[Found, float]:
    start = time.monotonic()
    return unit.measure(), time.monotonic() - start


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
