"""Snapshots: the weights at evenly spaced moments of a training, to look inside a model while it learns.

Of n snapshots the first has the weights before the first step, the last those at the end, and the others lie between
them at equal distances of the budget: at the shares 0, 1/(n−1), 2/(n−1), …, 1, in steps, epochs, tokens or minutes. A
snapshot has the weights that a validation judges, so the average where there is one. Nothing that is computed depends
on snapshots: a training has the same bits with and without them.
"""

import json
import shutil
from pathlib import Path

import torch

from seqloom.errors import RunError
from seqloom.runs.checkpoint import list_snapshots, name_checkpoint, read_step, save_snapshot, verify_folder
from seqloom.runs.machine import describe_training
from seqloom.runs.run import TrainingRun
from seqloom.training.distributed import collect
from seqloom.training.monitor import Monitor
from seqloom.training.schedule import Budget, Progress
from seqloom.training.step import Learner
from seqloom.training.weights import RunningAverage

_STATE = ("step", "predictions", "seconds")
"""What says how much of a budget of any kind is spent."""


class Snapshots:
    """Keeps the snapshots of a training. Every rank must have one, and ask it at the same steps."""

    def __init__(
        self, learner: Learner, average: RunningAverage, run: TrainingRun, budget: Budget, monitor: Monitor
    ) -> None:
        self._learner, self._average, self._run = learner, average, run
        self._budget, self._monitor, self._count = budget, monitor, learner.config.snapshots
        self._passed = 0
        """How many moments for a snapshot are over."""

    def resume(self, progress: Progress) -> None:
        """Go on with the snapshots there are; those of later steps, which will come again, are removed.

        So are those that the number of snapshots or the budget, if one was changed, has no room for.
        """
        found = list_snapshots(self._run.snapshots) if self._run.writes else []
        for folder in found:
            past = 0 < progress.step >= read_step(folder)  # a training that begins anew has none
            share = self._read_share(folder) if past else None
            if share is None or (self._count and self._count_passed(share) <= self._passed):
                shutil.rmtree(folder)
            else:
                self._passed = self._count_passed(share)
        self._passed = int(self._learner.group.from_main(float(self._passed))[0])

    def keep(self, progress: Progress, *, last: bool) -> None:
        """Keep a snapshot if it is time for one, or if this is the end."""
        passed = self._count if last else self._count_passed(self._budget.spent(progress))
        if passed <= self._passed:
            return
        self._passed, group = passed, self._learner.group
        weights = collect({**dict(self._learner.model.named_parameters()), **self._average.weights}.items(), group)
        if not group.is_main:
            return
        folder = name_checkpoint(self._run.snapshots, progress.step)
        try:
            if not all(torch.isfinite(tensor).all() for tensor in weights.values()):
                raise RunError(f"the weights are not finite at step {progress.step:,}")
            conditions = describe_training(self._learner.config, group.size, self._learner.device, progress.earlier)
            save_snapshot(folder, weights, {name: getattr(progress, name) for name in _STATE}, conditions)
        except RunError as error:  # nothing rests on it
            self._monitor.say(f"{error}; the training goes on without this snapshot")

    def _count_passed(self, share: float) -> int:
        """How many moments for a snapshot are over when a share of the budget is spent."""
        share = min(share, 1.0)
        return int(share) if self._count == 1 else self._count and 1 + int((self._count - 1) * share + 1e-9)

    def _read_share(self, folder: Path) -> float | None:
        """How much of the budget was spent; None if the snapshot is damaged."""
        try:
            verify_folder(folder)
        except RunError as error:
            self._monitor.say(f"{error}; this snapshot is removed")
            return None
        return self._budget.spent(Progress(**json.loads((folder / "state.json").read_bytes())))
