"""What a training saves, what it resumes from, and which weights it ends with.

A training saves at the same steps however often it is interrupted. What it saves because it was told to stop is only to
resume from: that is never averaged, and the next regular checkpoint replaces it.
"""

import shutil
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

import torch
from torch import nn

from seqloom.config.train import TrainConfig
from seqloom.errors import RunError
from seqloom.runs.checkpoint import (
    Checkpoint,
    find_newest,
    list_checkpoints,
    list_regular,
    list_stopped,
    load_checkpoint,
    name_checkpoint,
    read_step,
    save_checkpoint,
    verify_folder,
)
from seqloom.runs.machine import describe_training, explain_difference, list_earlier
from seqloom.runs.run import TrainingRun
from seqloom.tasks import Task
from seqloom.tasks.configuration import load_resolved
from seqloom.training.distributed import collect
from seqloom.training.monitor import Monitor
from seqloom.training.schedule import Budget, Progress
from seqloom.training.step import Learner
from seqloom.training.weights import RunningAverage, average_weights, set_weights

ADVICE = "Try a lower train.optimizer.learning_rate"


def save(
    learner: Learner, average: RunningAverage, progress: Progress, run: TrainingRun, budget: Budget, *, stopped: bool
) -> None:
    """Save, and forget the oldest, but neither the best one nor the last one before the rate goes down.

    Weights that are not finite are not worth keeping.
    """
    config, group = learner.config, learner.group
    if not stopped and budget.spent(progress) <= budget.flat:
        progress.flat = progress.step
    weights = collect(learner.model.named_parameters(), group)
    moments = collect(chain(learner.optimizer.state(), average.state()), group)

    def write() -> None:
        if not group.is_main:
            return
        state = asdict(replace(progress, log_size=run.log.size))
        conditions = describe_training(config, group.size, learner.device, progress.earlier)
        checkpoint = Checkpoint(weights, moments, state, conditions)
        if not all(torch.isfinite(tensor).all() for tensor in checkpoint.model.values()):
            raise RunError(
                f"the weights are not finite at step {progress.step:,}; the last good checkpoint is kept. {ADVICE}"
            )
        folder = name_checkpoint(run.checkpoints, progress.step, stopped=stopped)
        save_checkpoint(folder, checkpoint)
        lasting = {folder, *(name_checkpoint(run.checkpoints, step) for step in (progress.best_step, progress.flat))}
        old = list_regular(run.checkpoints)[: -max(config.keep, config.average)]
        for other in (*list_stopped(run.checkpoints), *old):
            if other not in lasting:
                shutil.rmtree(other)

    group.main_first(write)  # a rank that goes on sees the folder as it will be


def resume(
    learner: Learner, average: RunningAverage, run: TrainingRun, monitor: Monitor, budget: Budget
) -> tuple[Progress, bool] | None:
    """Go back to the newest checkpoint: how far it had come, and whether it was saved because of a stop."""
    found = find_newest(run.checkpoints, monitor.say)
    former = budget.given
    if found is not None:
        former = found[1].state.get("budget") or _read_budget(run, budget)
        if former != budget.given:
            found = _extend(found, former, run, budget, monitor)
    elif run.finished:
        monitor.say(f"no checkpoint of {run.folder} is left, so the training begins anew")
    progress = None if found is None else Progress.from_state(found[1].state)
    step = 0 if progress is None else progress.step
    if learner.group.add(float(step))[0] != learner.group.size * step:
        raise RunError(f"the ranks do not see the same checkpoints in {run.folder}; the folder must be one all share")
    if found is None or progress is None:
        run.log.cut(0)
        return None
    folder, checkpoint = found
    if former != budget.given:
        _adopt(progress, former, run, budget)
    elif progress.warmup is None:
        progress.warmup = budget.count_warmup(Progress())
    restore(learner.model, checkpoint)
    learner.optimizer.load(checkpoint.optimizer)
    average.load(checkpoint.optimizer)
    run.log.cut(progress.log_size)
    monitor.say(f"resuming from step {progress.step:,} ({folder})")
    now = describe_training(learner.config, learner.group.size, learner.device)
    difference = explain_difference(checkpoint.conditions, now)
    if difference is not None and budget.spent(progress) < 1.0:
        monitor.say(difference)
    progress.earlier = list_earlier(progress.earlier, progress.step, checkpoint.conditions, now)
    _check_chosen(progress, run, learner.config, monitor)
    return progress, folder in list_stopped(run.checkpoints)


def _extend(
    found: tuple[Path, Checkpoint], former: dict[str, float], run: TrainingRun, budget: Budget, monitor: Monitor
) -> tuple[Path, Checkpoint]:
    """Where a training goes on that is given another budget: before its rate went down, if that was saved."""
    progress = Progress.from_state(found[1].state)
    before = budget.replace(former)
    if budget.spent(progress) >= 1.0:
        raise RunError(
            f"{run.folder} has taken {progress.step:,} steps, which is all of the new budget ({budget}) or more; "
            "give a larger one, or train in a new folder with `out`"
        )
    change = f"the budget was {before} and is now {budget}:"
    differs = "a new run with this budget may end with other weights"
    if before.spent(progress) <= before.flat:
        monitor.say(
            f"{change} the training goes on from step {progress.step:,}, where the rate was still high; {differs}"
        )
        return found
    flat = name_checkpoint(run.checkpoints, progress.flat)
    try:
        earlier = load_checkpoint(flat)
    except RunError:
        monitor.say(
            f"{change} no checkpoint is left from before the rate went down, so it rises again from step "
            f"{progress.step:,}; {differs}"
        )
        return found
    monitor.say(
        f"{change} the training goes on from step {progress.flat:,}, the last checkpoint before the rate went down; "
        f"{differs}"
    )
    return flat, earlier


def _read_budget(run: TrainingRun, budget: Budget) -> dict[str, float]:
    """The budget of a finished run whose checkpoints, of an older version, do not have it."""
    config = load_resolved(run.folder / "config.toml") if run.finished else None
    return budget.of(config.train).given if isinstance(config, Task) else budget.given


def _adopt(progress: Progress, former: dict[str, float], run: TrainingRun, budget: Budget) -> None:
    """Give a training its new budget; checkpoints that were saved after the one it goes on from are of the past."""
    before = budget.replace(former)
    for later in list_checkpoints(run.checkpoints) if run.writes else ():
        if read_step(later) > progress.step:
            shutil.rmtree(later)
    if before.spent(progress) > before.flat:
        progress.risen, progress.risen_spent = progress.step, budget.spent(progress)
        progress.warmup = budget.count_warmup(progress)
    progress.budget, progress.stage, progress.stale = budget.given, budget.stage(progress), 0
    if not name_checkpoint(run.checkpoints, progress.best_step).exists():  # a better one took its place, and is gone
        progress.best_score, progress.best_step = None, 0


def _check_chosen(progress: Progress, run: TrainingRun, config: TrainConfig, monitor: Monitor) -> None:
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
    model: nn.Module,
    average: RunningAverage,
    progress: Progress,
    run: TrainingRun,
    config: TrainConfig,
    monitor: Monitor,
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
        raise RunError("the checkpoint is of another model; give this configuration a folder of its own with `out`")
    set_weights(model, checkpoint.model)
