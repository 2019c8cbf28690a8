"""What a training would take on this machine: a few real steps, in a process of its own so that its memory shows."""

import multiprocessing
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch
from torch import nn

from seqloom.data.doctor.report import Forecast, Report
from seqloom.errors import RunError
from seqloom.runs.machine import measure_memory
from seqloom.tasks import Task
from seqloom.training.clock import CLOCKS
from seqloom.training.distributed import ProcessGroup
from seqloom.training.prepare import Prepared
from seqloom.training.rehearsal import prepare_here
from seqloom.training.schedule import Budget, Pace
from seqloom.training.step import Learner, take_step

_WARM_UP, _MEASURED = 1, 4


def forecast(task: Task, base: Path, folder: Path, report: Report) -> Forecast:
    """Measure a configuration whose data passed the checks and were prepared in `folder`."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            batches, records, pace, memory, size = pool.submit(_measure, task, base, folder).result()
        except BrokenProcessPool:
            raise RunError(
                "the process that tried a few training steps was killed, most likely for lack of memory; "
                "lower batch.tokens, or choose a smaller size"
            ) from None
    total = next(split.records for split in report.splits if split.split == "train")
    steps = max(1, round(batches * max(1.0, total * task.data.train_share / records)))
    budget = Budget(task.train, steps)
    needed = budget.count_steps(pace)
    return Forecast(
        size=task.size,
        steps_per_epoch=steps,
        minutes_per_epoch=steps * pace.seconds / 60.0,
        budget=str(budget.amount),
        epochs=needed / steps,
        minutes=needed * pace.seconds / 60.0,
        peak_memory_bytes=memory,
        snapshots=task.train.snapshots,
        snapshot_bytes=size,
    )


def _measure(task: Task, base: Path, folder: Path) -> tuple[int, int, Pace, int | None, int]:
    """Batches in the first records, their number, how fast steps are, the most memory used and the bytes of weights."""
    torch.set_num_threads(task.train.threads or os.cpu_count() or 1)
    prepared = prepare_here(task, base, folder, lambda _: None)
    model = task.build(prepared.tokenizer, prepared.labels)
    pace = _time_steps(model, task, prepared)
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return len(prepared.train), len(prepared.records["train"]), pace, measure_memory(torch.device("cpu")), size


def _time_steps(model: nn.Module, task: Task, prepared: Prepared) -> Pace:
    train, times, counts = task.train, [], []
    clock = CLOCKS[train.clock]
    learner = Learner(model, task, ProcessGroup())
    for step in range(_WARM_UP + _MEASURED):
        parts = [prepared.train.build(step, part, train.accumulate) for part in range(train.accumulate)]
        started = clock()
        counts.append(take_step(learner, parts, step).count)
        times.append(clock() - started)
    return Pace(statistics.median(times[_WARM_UP:]), statistics.mean(counts))
