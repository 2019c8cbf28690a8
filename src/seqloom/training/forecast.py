"""What a training would take on this machine: a few real steps, in a process of its own so that its memory shows."""

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqloom.data.corpus import Corpus, open_split
from seqloom.data.doctor.report import Forecast, Report
from seqloom.data.examples import Chunk, Example
from seqloom.data.files import STDIN
from seqloom.tasks import Config, Task
from seqloom.training.distributed import ProcessGroup
from seqloom.training.prepare import Prepared, make_batches
from seqloom.training.step import Learner, take_step

_RECORDS = 10_000
_WARM_UP, _MEASURED = 1, 4


@dataclass(frozen=True)
class _Beginning:
    """The first records of a corpus."""

    corpus: Corpus
    weight: float

    def files(self) -> list[str]:
        """None to recognise it by: what is measured is not kept."""
        return []

    def chunks(self) -> Iterator[Chunk]:
        """Chunks up to the last record that is taken."""
        left = _RECORDS
        for chunk in self.corpus.chunks():
            yield chunk.select([number < left for number in range(len(chunk))])
            left -= len(chunk)
            if left <= 0:
                return

    def __iter__(self) -> Iterator[Example]:
        for chunk in self.chunks():
            yield from chunk.examples()


def forecast(config: Config, base: Path, report: Report) -> Forecast | None:
    """Measure a configuration whose data passed the checks.

    None for word vectors, which are not trained in steps, and for standard input, which cannot be read twice.
    """
    files = [file for corpus in open_split(config.data, "train", base) for file in corpus.files()]
    if not isinstance(config, Task) or STDIN in files:
        return None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        batches, records, seconds, memory = pool.apply(_measure, (config, base))
    total = next(split.records for split in report.splits if split.split == "train")
    steps = max(1, round(batches * total / records))
    return Forecast(
        size=config.size,
        steps_per_epoch=steps,
        minutes_per_epoch=steps * seconds / 60.0,
        peak_memory_bytes=memory,
    )


def _measure(task: Task, base: Path) -> tuple[int, int, float, int | None]:
    """Batches in the first records, their number, seconds a step, and the most memory that was used."""
    torch.set_num_threads(task.train.threads or os.cpu_count() or 1)
    corpora: Any = [_Beginning(corpus, corpus.weight) for corpus in open_split(task.data, "train", base)]
    with tempfile.TemporaryDirectory() as folder:
        prepared = make_batches(task, corpora, (), base, Path(folder), lambda _: None)
        seconds = _time_steps(task, prepared)
    records = sum(1 for corpus in corpora for _ in corpus)
    return len(prepared.train), records, seconds, _measure_memory()


def _measure_memory() -> int | None:
    """The most bytes this process has held; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # what ru_maxrss counts in
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _time_steps(task: Task, prepared: Prepared) -> float:
    model = task.build(prepared.tokenizer, prepared.labels)
    train, times = task.train, []
    learner = Learner(model, task, ProcessGroup())
    for step in range(_WARM_UP + _MEASURED):
        parts = [prepared.train.build(step, part, train.accumulate) for part in range(train.accumulate)]
        started = time.perf_counter()
        take_step(learner, parts, step)
        times.append(time.perf_counter() - started)
    return statistics.median(times[_WARM_UP:])
