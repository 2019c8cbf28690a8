"""How a server computes fastest on this machine: in one process with all threads, or in as many with one thread each.

Which it is depends on the model, the processor and its memory, so it is measured, with the first model of the server.
The measurement has threads in place of processes, which share Python's lock, so it does not favour them.
"""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch

from seqloom.predict.predictor import Predictor
from seqloom.predict.workers import share
from seqloom.serve.computer import LocalComputer
from seqloom.serve.groups import Given
from seqloom.serve.models import Models, Served
from seqloom.serve.verbs import prepare

_LINES = 8
"""Lines of each worker."""
_TOKENS = 6
_TEXT = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_MARGIN = 1.1
"""How many times as fast several processes must be: each needs memory for the models."""
_ROUNDS = 3


@dataclass(frozen=True)
class Pace:
    """How many workers compute, and why."""

    workers: int
    """1: this process computes, with all its threads."""
    threads: int
    """Of each."""
    reason: str = ""

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        who = "one process" if self.workers == 1 else f"{self.workers} processes"
        each = " each" if self.workers > 1 else ""
        return f"{who} computing with {threads}{each}{self.reason}"


def set_pace(workers: int) -> Pace:
    """What an operator asks for."""
    return Pace(workers, 1 if workers > 1 else torch.get_num_threads())


def measure_pace(models: Models) -> Pace:
    """The faster way to compute with the first model."""
    threads, model = torch.get_num_threads(), next(iter(models))
    if threads == 1 or model.predictor.engine_name.startswith("ctranslate2"):
        return Pace(1, threads)
    verb = next((one for one in ("translate", "generate") if one in model.verbs), "embed")
    together, apart = [], []
    for number in range(_ROUNDS + 1):
        times = _measure_together(model, verb, threads), _measure_apart(model, verb, threads)
        if number:  # the first round warms up
            together.append(times[0])
            apart.append(times[1])
    gain = statistics.median(together) / statistics.median(apart)
    if gain >= _MARGIN:
        return Pace(threads, 1, f", {gain:.1f} times as fast here as one with {threads}")
    return Pace(1, threads, f"; {threads} with one each would be {gain:.1f} times as fast")


def _measure_together(model: Served, verb: str, threads: int) -> float:
    started = time.perf_counter()
    _compute(model.predictor, verb, _LINES * threads)
    return time.perf_counter() - started


def _measure_apart(model: Served, verb: str, threads: int) -> float:
    started = time.perf_counter()
    list(share([_LINES] * threads, lambda lines: _compute(model.predictor, verb, lines), threads))
    return time.perf_counter() - started


def _compute(predictor: Predictor, verb: str, lines: int) -> None:
    """Search for some lines, or embed them, as a lane does."""
    search = {"min_length": _TOKENS, "max_length": _TOKENS}
    options: dict[str, dict[str, Any]] = {"translate": {"align": False, **search}, "generate": search}
    work, computer = prepare(verb, predictor, [_TEXT] * lines, options.get(verb, {})), LocalComputer()
    group = computer.open(predictor, work.get_kind(0))
    left = len(work.sizes)
    found = computer.step(group, [Given(number, work.get_item(number), False) for number in range(left)], ())
    while (left := left - len(found.lines)) > 0:
        found = computer.step(group, (), ())
