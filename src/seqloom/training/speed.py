"""How fast a training is: the lines of speed.jsonl, which differ at every repetition, as those of the log do not.

{"start": time, …}       a process begins or resumes the training, and what is known about it
{"step", "seconds", …}   then, now and then, how far it has come; the last line of a process has "end": "finished" or
                         "stopped", unless it was killed
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import torch

from seqloom.runs.machine import measure_memory
from seqloom.runs.run import TrainingRun
from seqloom.training.schedule import Progress

_SECONDS, _SHARE = 1.0, 1 / 200
"""The time between two lines: at least so long, and at least this share of the whole time so far."""


class SpeedLog:
    """Writes that a process begins or resumes a training, what is known about it, and how fast it is."""

    def __init__(self, run: TrainingRun, device: torch.device, facts: Mapping[str, Any]) -> None:
        self._log, self._device, self._last = run.speed, device, 0.0
        self._log.add(start=datetime.now(UTC).isoformat(timespec="seconds"), **facts)

    def is_due(self, progress: Progress) -> bool:
        """Whether it is time for a line."""
        return progress.seconds - self._last >= max(_SECONDS, _SHARE * progress.seconds)

    def write(
        self, progress: Progress, spent: float, waited: float = 0.0, end: Literal["finished", "stopped"] | None = None
    ) -> None:
        """Write how far the training has come; `waited` is for batches, in this process."""
        self._last = progress.seconds
        self._log.add(
            step=progress.step,
            seconds=round(progress.seconds, 3),
            validating=round(progress.validating, 3),
            predictions=progress.predictions,
            spent=round(spent, 6),
            waited=round(waited, 3),
            memory=measure_memory(self._device),
            **({} if end is None else {"end": end}),
        )
