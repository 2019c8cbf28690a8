"""The loop: steps, looks at the validation data, checkpoints, until the budget is spent.

Batches, masking noise and dropout are functions of (seed, step), so the state to save is small: weights, optimizer,
`Progress`. Whoever is killed and started again ends with the same bits.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weft.config.train import TrainConfig
from weft.data.loading import Loader
from weft.errors import RunError
from weft.train.average import RunningAverage, average_weights, set_weights
from weft.train.budget import Budget, Progress
from weft.train.checkpoint import Checkpoint, find_newest, load_checkpoint, save_checkpoint
from weft.train.evaluate import Evaluation, evaluate
from weft.train.optim import Updater
from weft.train.prepare import Prepared
from weft.train.run import Run, detach_parameters
from weft.train.schedule import rate_at
from weft.train.step import Outcome, take_step
from weft.train.watch import Watch

_MAX_SKIPPED = 5
_MAX_PARTS = 256
_ADVICE = "Try a lower train.optimizer.learning_rate"


def fit(
    model: nn.Module,
    prepared: Prepared,
    config: TrainConfig,
    run: Run,
    watch: Watch,
    should_stop: Callable[[], bool] = lambda: False,
) -> Progress:
    """Train until the budget is spent, patience is lost or `should_stop`; the model then has its best weights."""
    updater, average = Updater(model, config.optimizer), RunningAverage(model, config.ema)
    progress = _resume(model, updater, average, run, watch) or Progress(
        parts=config.accumulate, data=prepared.fingerprint
    )
    if progress.data != prepared.fingerprint:
        raise RunError(
            f"the training data changed since step {progress.step:,} of {run.folder}; "
            "bring the old files back to go on, or train in a new folder with --out"
        )
    budget = Budget(config, len(prepared.train))
    model.train()

    def make_parts(step: int) -> list[Any]:
        return [prepared.train.build(step, part, progress.parts) for part in range(progress.parts)]

    def take(parts: list[Any]) -> Outcome:
        """Take a step; where the memory does not suffice, with the same batch in smaller parts."""
        try:
            return take_step(model, updater, parts, config, progress.step)
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error) or progress.parts > _MAX_PARTS:
                raise
            model.zero_grad()
            progress.parts = max(2 * len(parts), progress.parts)
            watch.tell(f"out of memory at step {progress.step:,}: batches are now cut into {progress.parts} parts")
            return take(make_parts(progress.step))

    watch.start(budget, progress)
    with Loader(make_parts, progress.step) as loader:
        while budget.spent(progress) < 1.0 and not _lost_patience(progress, config):
            started = time.perf_counter()
            spent = budget.spent(progress)
            share = rate_at(
                config.schedule,
                step=progress.step,
                spent=spent,
                warmup=config.warmup,
                plateaus=progress.plateaus,
            )
            updater.set_rate(share)
            outcome = take(next(loader))
            average.update(progress.step)
            _count(progress, outcome, run, share)
            progress.seconds += time.perf_counter() - started
            watch.step(progress, outcome, budget.spent(progress))
            finished = budget.spent(progress) >= 1.0
            if prepared.valid is not None and (finished or progress.step % config.validate_every == 0):
                started = time.perf_counter()
                with average.in_use():
                    evaluation = evaluate(model, prepared.valid, prepared.tokenizer)
                _judge(progress, evaluation, run)
                progress.seconds += time.perf_counter() - started
                watch.judge(progress, evaluation)
            stopping = should_stop()
            best = progress.best_step == progress.step
            if best or finished or stopping or progress.step % config.save_every == 0:
                _save(model, updater, average, progress, run, config)
            if stopping:
                return progress
        run.speed.add(step=progress.step, seconds=progress.seconds, waited=loader.waited)
    _choose_weights(model, average, progress, run, config)
    return progress


def _choose_weights(
    model: nn.Module, average: RunningAverage, progress: Progress, run: Run, config: TrainConfig
) -> None:
    """Give the model the weights to keep: the mean of the last checkpoints, or the best one."""
    if config.average:
        last = sorted(run.checkpoints.glob("step-*"))[-config.average :]
        set_weights(model, average_weights([load_checkpoint(folder).model for folder in last]))
        return
    if progress.best_step not in (0, progress.step):
        checkpoint = load_checkpoint(_folder(run, progress.best_step))
        restore(model, checkpoint)
        average.load(checkpoint.optimizer)
    set_weights(model, average.weights)


def restore(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Give a model the weights of a checkpoint."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != checkpoint.model.keys():
        raise RunError("the checkpoint is of another model; give this configuration a folder of its own with --out")
    set_weights(model, checkpoint.model)


def _is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text


def _resume(model: nn.Module, updater: Updater, average: RunningAverage, run: Run, watch: Watch) -> Progress | None:
    found = find_newest(run.checkpoints, watch.tell)
    if found is None:
        run.log.cut(0)
        return None
    folder, checkpoint = found
    restore(model, checkpoint)
    updater.load(checkpoint.optimizer)
    average.load(checkpoint.optimizer)
    progress = Progress.from_state(checkpoint.state)
    run.log.cut(progress.log_size)
    watch.tell(f"going on from step {progress.step:,} ({folder})")
    return progress


def _count(progress: Progress, outcome: Outcome, run: Run, share: float) -> None:
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
            f"the last good checkpoint is kept. {_ADVICE}"
        )


def _judge(progress: Progress, evaluation: Evaluation, run: Run) -> None:
    better = progress.best_score is None or evaluation.score > progress.best_score
    progress.stale = 0 if better else progress.stale + 1
    progress.plateaus += progress.stale > 0 and progress.stale % 2 == 0
    if better:
        progress.best_score, progress.best_step = evaluation.score, progress.step
    run.log.add(step=progress.step, valid=evaluation.measures, samples=evaluation.samples)


def _lost_patience(progress: Progress, config: TrainConfig) -> bool:
    return config.patience is not None and progress.stale >= config.patience


def _save(
    model: nn.Module, updater: Updater, average: RunningAverage, progress: Progress, run: Run, config: TrainConfig
) -> None:
    """Save, and forget the oldest, but never the best one; weights that are not finite are not worth keeping."""
    state = asdict(replace(progress, log_size=run.log.size))
    checkpoint = Checkpoint(dict(detach_parameters(model)), {**updater.state(), **average.state()}, state)
    if not all(torch.isfinite(tensor).all() for tensor in checkpoint.model.values()):
        raise RunError(
            f"the weights are not finite at step {progress.step:,}; the last good checkpoint is kept. {_ADVICE}"
        )
    save_checkpoint(_folder(run, progress.step), checkpoint)
    saved = sorted(run.checkpoints.glob("step-*"))
    for folder in saved[: -max(config.keep, config.average)]:
        if folder != _folder(run, progress.best_step):
            shutil.rmtree(folder)


def _folder(run: Run, step: int) -> Path:
    return run.checkpoints / f"step-{step:08d}"
