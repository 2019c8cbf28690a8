"""The loop: steps, validations, checkpoints, until the budget is spent.

Batches, masking noise and dropout are functions of (seed, step), so the state to save is small: weights, optimizer,
`Progress`. Whoever is killed and started again ends with the same bits.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from seqloom.config.train import TrainConfig
from seqloom.data.batching import Batches, Loader
from seqloom.errors import ConfigError, RunError
from seqloom.nn.transformer import Stack
from seqloom.runs.run import TrainingRun
from seqloom.tasks.base import Judge, Task
from seqloom.training.checkpointing import ADVICE, choose_weights, resume, save
from seqloom.training.clock import CLOCKS
from seqloom.training.distributed import ProcessGroup
from seqloom.training.monitor import Monitor
from seqloom.training.prepare import Prepared
from seqloom.training.schedule import Budget, Progress
from seqloom.training.snapshots import Snapshots
from seqloom.training.speed import SpeedLog
from seqloom.training.step import Learner, Outcome, take_step
from seqloom.training.validation import Validation, list_details, validate
from seqloom.training.weights import RunningAverage

_MAX_SKIPPED = 5
_MAX_PARTS = 256
_MAX_EMPTY = 100  # steps without anything to predict
_FIRST_SCALE, _UNBROKEN = 1024.0, 1000
_ALONE = ProcessGroup()


def fit(
    model: nn.Module,
    task: Task,
    prepared: Prepared,
    run: TrainingRun,
    monitor: Monitor,
    should_stop: Callable[[], bool] = lambda: False,
    group: ProcessGroup = _ALONE,
    facts: Mapping[str, Any] | None = None,
) -> Progress | None:
    """Train until the budget is spent or patience is lost; the model then has its best weights. None if stopped.

    `facts` are what is known about this process; the run notes them once it is clear that the training can go on.
    """
    config, judge = task.train, Judge(task, prepared.labels)
    clock = CLOCKS[config.clock]
    learner, average = Learner(model, task, group), RunningAverage(model, config.ema)
    if config.clock == "processor" and learner.device.type != "cpu":
        raise ConfigError(f'train.clock = "processor" counts processors only, and this trains on {learner.device.type}')
    budget = Budget(config, len(prepared.train))
    first = Progress(
        parts=config.accumulate, data=prepared.fingerprint, scale=_FIRST_SCALE if config.precision == "float16" else 1.0
    )
    first.budget, first.warmup = budget.given, budget.count_warmup(first)
    # Is there something that a regular checkpoint would save? After a stop, what one would have saved at that step.
    progress, changed = resume(learner, average, run, monitor, budget) or (first, False)
    if progress.data != prepared.fingerprint:
        raise RunError(
            f"the training data changed since step {progress.step:,} of {run.folder}; "
            "bring the old files back to resume, or train in a new folder with `out`"
        )
    snapshots = Snapshots(learner, average, run, budget, monitor)
    snapshots.resume(progress)
    model.train()

    def make_parts(step: int) -> list[Any]:
        first, parts = group.rank * progress.parts, group.size * progress.parts
        return [prepared.train.build(step, first + part, parts) for part in range(progress.parts)]

    def take(parts: list[Any]) -> Outcome:
        """Take a step; if memory runs out, with the same batch in smaller parts."""
        try:
            return take_step(learner, parts, progress.step, progress.scale)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or progress.parts > _MAX_PARTS:
                raise
            if task.needs_whole_batch:
                _save_memory(model, progress, monitor)
                return take(parts)
            if group.size > 1:  # the others are waiting for this rank's gradients by now
                raise RunError(
                    f"rank {group.rank} is out of memory at step {progress.step:,}; "
                    f"train with train.accumulate={2 * progress.parts} in a new folder, or with sharding"
                ) from None
            model.zero_grad()
            progress.parts = max(2 * len(parts), progress.parts)
            monitor.say(f"out of memory at step {progress.step:,}: batches are now cut into {progress.parts} parts")
            return take(make_parts(progress.step))

    def run_validation(valid: Batches[Any]) -> bool:
        """Judge the model on the validation data; False if that was broken off."""
        started = clock()
        with average.in_use():
            validation = validate(learner, valid, prepared, judge, should_stop)
        if validation is None:
            return False
        _judge(progress, validation, judge.score(validation.measures), run)
        seconds = group.from_main(clock() - started)[0]
        progress.seconds, progress.validating = progress.seconds + seconds, progress.validating + seconds
        monitor.validate(progress, validation)
        return True

    monitor.say(f"budget: {budget.plan(progress, validates=prepared.valid is not None)}")
    monitor.start(budget, progress, judge)
    speed = SpeedLog(run, learner.device, facts or {})
    speed.write(progress, budget.spent(progress))
    stopping = False  # whether somebody asked to
    with Loader(make_parts, progress.step) as loader:
        while True:
            finished = budget.spent(progress) >= 1.0
            reached = budget.stage(progress) > progress.stage
            due = reached and budget.affords_validation(progress)
            if config.validate_every is not None:
                due = progress.step % config.validate_every == 0
            due = due or finished
            if prepared.valid is not None and due and progress.judged != progress.step and not stopping:
                changed = run_validation(prepared.valid)
                stopping = not changed
            best = progress.best_step == progress.step
            regular = reached if config.save_every is None else progress.step % config.save_every == 0
            if not stopping:
                progress.stage = budget.stage(progress)
            if stopping or (changed and (best or finished or regular)):
                save(learner, average, progress, run, budget, stopped=stopping)
                changed = False
            ended = finished or _lost_patience(progress, config)
            if not stopping:
                snapshots.keep(progress, last=ended)
            if stopping or ended:
                break
            started, share = clock(), budget.rate(progress)
            learner.optimizer.set_rate(share)
            outcome = take(next(loader))
            average.update(progress.step)
            _count(progress, outcome, run, share)
            _refuse_nothing(progress, len(prepared.train), config)
            _rescale(progress, outcome, config)
            seconds, stops = group.add((clock() - started) * group.is_main, float(should_stop()))
            progress.seconds += seconds
            monitor.step(progress, outcome, budget.spent(progress))
            if speed.is_due(progress):
                speed.write(progress, budget.spent(progress), loader.waited)
            changed, stopping = True, stops > 0.0
        speed.write(progress, budget.spent(progress), loader.waited, "stopped" if stopping else "finished")
    if stopping:
        monitor.say(
            f"stopped and saved at step {progress.step:,}; the same command resumes from there, and "
            f"{run.folder} can be used with its best checkpoint so far"
        )
        return None
    _say_end(progress, judge, config, monitor)
    choose_weights(model, average, progress, run, config, monitor)
    return progress


def _say_end(progress: Progress, judge: Judge, config: TrainConfig, monitor: Monitor) -> None:
    """Say why it ended, and what is kept."""
    why = f" after {progress.stale} validations without a better one" if _lost_patience(progress, config) else ""
    best = ""
    if progress.best_score is not None:
        best = f": best {judge.describe(progress.best_score)} at step {progress.best_step:,}"
    mean = f"; what is kept is the mean of the last {config.average} checkpoints" if config.average else ""
    monitor.say(f"finished at step {progress.step:,}{why}{best}{mean}")


def _save_memory(model: nn.Module, progress: Progress, monitor: Monitor) -> None:
    """Compute layers again for their gradients: what is left to do where a batch must not be divided."""
    stacks = [module for module in model.modules() if isinstance(module, Stack) and not module.recompute]
    if not stacks:
        raise RunError(
            f"out of memory at step {progress.step:,}, and the loss of this task needs its batch whole; "
            "lower batch.tokens, in a new folder"
        )
    for stack in stacks:
        stack.recompute = True
    model.zero_grad()
    monitor.say(f"out of memory at step {progress.step:,}: layers are computed again for their gradients from here")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory."""
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text


def _count(progress: Progress, outcome: Outcome, run: TrainingRun, share: float) -> None:
    progress.step += 1
    progress.predictions += outcome.count
    progress.skipped = 0 if outcome.finite else progress.skipped + 1
    note: dict[str, Any] = {} if outcome.finite else {"skipped": "the loss or its gradient is not finite"}
    if outcome.layers:
        note["layers"] = outcome.layers
    run.log.add(step=progress.step, loss=outcome.loss, norm=outcome.norm, rate=share, count=outcome.count, **note)
    if progress.skipped >= _MAX_SKIPPED:
        raise RunError(
            f"the loss was not finite for {_MAX_SKIPPED} steps in a row, up to step {progress.step:,}; "
            f"the last good checkpoint is kept. {ADVICE}"
        )


def _refuse_nothing(progress: Progress, steps_per_epoch: int, config: TrainConfig) -> None:
    """Refuse to go on where there is nothing to learn, instead of waiting for a number of tokens that never comes."""
    enough = min(_MAX_EMPTY, steps_per_epoch, config.steps or _MAX_EMPTY)
    if progress.predictions == 0 and progress.step >= enough:
        raise RunError(
            f"nothing was predicted in {progress.step:,} steps, so there is nothing to learn: no row of the training "
            "data has a token to predict. Look at the data, and at frame, batch and masking in the configuration"
        )


def _rescale(progress: Progress, outcome: Outcome, config: TrainConfig) -> None:
    """Halve the scale of float16's gradients when they overflow, double it when they have not for long."""
    progress.unbroken = progress.unbroken + 1 if outcome.finite else 0
    if config.precision == "float16" and not outcome.finite:
        progress.scale /= 2.0
    elif config.precision == "float16" and progress.unbroken == _UNBROKEN:
        progress.scale, progress.unbroken = 2.0 * progress.scale, 0


def _judge(progress: Progress, validation: Validation, score: list[float], run: TrainingRun) -> None:
    better = progress.best_score is None or score > progress.best_score
    note: dict[str, Any] = {}
    progress.judged = progress.step
    progress.stale = 0 if better else progress.stale + 1
    progress.plateaus += progress.stale > 0 and progress.stale % 2 == 0
    if better:
        progress.best_score, progress.best_step = score, progress.step
        note |= list_details(validation.details)
    note |= {"sample": validation.sample} if validation.sample else {}
    samples = list(map(asdict, validation.samples))
    run.log.add(step=progress.step, valid=validation.measures, samples=samples, **note)


def _lost_patience(progress: Progress, config: TrainConfig) -> bool:
    return config.patience is not None and progress.stale >= config.patience
