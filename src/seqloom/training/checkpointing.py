"""What a training saves, what it resumes from, and which weights it ends with.

A training saves at the same steps however often it is interrupted. What it saves because it was told to stop is only to
resume from: that is never averaged, and the next regular checkpoint replaces it.
"""

import shutil
from dataclasses import asdict, replace
from itertools import chain

import torch
from torch import nn

from seqloom.config.train import TrainConfig
from seqloom.errors import RunError
from seqloom.runs.checkpoint import (
    Checkpoint,
    find_newest,
    list_regular,
    list_stopped,
    load_checkpoint,
    name_checkpoint,
    read_step,
    save_checkpoint,
    verify_folder,
)
from seqloom.runs.machine import describe_training, explain_difference
from seqloom.runs.run import Run
from seqloom.training.distributed import collect
from seqloom.training.monitor import Monitor
from seqloom.training.schedule import Budget, Progress
from seqloom.training.step import Learner
from seqloom.training.weights import RunningAverage, average_weights, set_weights

ADVICE = "Try a lower train.optimizer.learning_rate"


def save(learner: Learner, average: RunningAverage, progress: Progress, run: Run, *, stopped: bool) -> None:
    """Save, and forget the oldest, but never the best one; weights that are not finite are not worth keeping."""
    config, group = learner.config, learner.group
    weights = collect(learner.model.named_parameters(), group)
    moments = collect(chain(learner.optimizer.state(), average.state()), group)

    def write() -> None:
        if not group.is_main:
            return
        state = asdict(replace(progress, log_size=run.log.size))
        checkpoint = Checkpoint(weights, moments, state, describe_training(config, group.size, learner.device))
        if not all(torch.isfinite(tensor).all() for tensor in checkpoint.model.values()):
            raise RunError(
                f"the weights are not finite at step {progress.step:,}; the last good checkpoint is kept. {ADVICE}"
            )
        folder = name_checkpoint(run.checkpoints, progress.step, stopped=stopped)
        save_checkpoint(folder, checkpoint)
        best = name_checkpoint(run.checkpoints, progress.best_step)
        old = list_regular(run.checkpoints)[: -max(config.keep, config.average)]
        for other in (*list_stopped(run.checkpoints), *old):
            if other not in (folder, best):
                shutil.rmtree(other)

    group.main_first(write)  # a rank that goes on sees the folder as it will be


def resume(
    learner: Learner, average: RunningAverage, run: Run, monitor: Monitor, budget: Budget
) -> tuple[Progress, bool] | None:
    """Go back to the newest checkpoint: how far it had come, and whether it was saved because of a stop."""
    found = find_newest(run.checkpoints, monitor.say)
    progress = None if found is None else Progress.from_state(found[1].state)
    step = 0 if progress is None else progress.step
    if learner.group.add(float(step))[0] != learner.group.size * step:
        raise RunError(f"the ranks do not see the same checkpoints in {run.folder}; the folder must be one all share")
    if found is None or progress is None:
        run.log.cut(0)
        return None
    folder, checkpoint = found
    restore(learner.model, checkpoint)
    learner.optimizer.load(checkpoint.optimizer)
    average.load(checkpoint.optimizer)
    run.log.cut(progress.log_size)
    monitor.say(f"resuming from step {progress.step:,} ({folder})")
    now = describe_training(learner.config, learner.group.size, learner.device)
    difference = explain_difference(checkpoint.conditions, now)
    if difference is not None and budget.spent(progress) < 1.0:
        monitor.say(difference)
    _check_chosen(progress, run, learner.config, monitor)
    return progress, folder in list_stopped(run.checkpoints)


def _check_chosen(progress: Progress, run: Run, config: TrainConfig, monitor: Monitor) -> None:
    """Notice damage to checkpoints that the end would need while there is time to make others."""
    if config.average:
        past = [folder for folder in list_regular(run.checkpoints) if read_step(folder) <= progress.step]
        for folder in past[-config.average :]:
            try:
                verify_folder(folder)
            except RunError as error:
                monitor.say(f"{error}; it will be left out of the mean of the last checkpoints")
    elif progress.best_step:
        try:
            verify_folder(name_checkpoint(run.checkpoints, progress.best_step))
        except RunError as error:
            monitor.say(f"{error}; it was the best checkpoint, and the best of those to come will take its place")
            progress.best_score, progress.best_step = None, 0


def choose_weights(
    model: nn.Module, average: RunningAverage, progress: Progress, run: Run, config: TrainConfig, monitor: Monitor
) -> None:
    """Give the model the weights to keep: the mean of the last checkpoints, or the best one; those that are damaged are
    left out, and where none is left the model keeps the weights of the last step."""
    if config.average:
        whole = []
        for folder in list_regular(run.checkpoints)[-config.average :]:
            try:
                whole.append(load_checkpoint(folder).model)
            except RunError as error:
                monitor.say(f"{error}; it is left out of the mean of the last checkpoints")
        set_weights(model, average_weights(whole) if whole else average.weights)
        return
    if progress.best_step not in (0, progress.step):
        try:
            checkpoint = load_checkpoint(name_checkpoint(run.checkpoints, progress.best_step))
            restore(model, checkpoint)
            average.load(checkpoint.optimizer)
        except RunError as error:
            monitor.say(f"{error}; it was the best checkpoint, and the model gets the weights of the last step instead")
            progress.best_step = progress.step
    set_weights(model, average.weights)


def restore(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Give a model the weights of a checkpoint."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != checkpoint.model.keys():
        raise RunError("the checkpoint is of another model; give this configuration a folder of its own (out)")
    set_weights(model, checkpoint.model)
