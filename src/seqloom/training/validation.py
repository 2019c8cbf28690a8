"""How good a model is on data it does not learn from: its loss, and the metrics that `eval` measures its task by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from seqloom.data.batching import Batches
from seqloom.errors import DataError
from seqloom.metrics.likelihood import exponentiate
from seqloom.tasks.base import Answers, Context, Judge
from seqloom.training.distributed import unsharded
from seqloom.training.prepare import Prepared
from seqloom.training.step import Learner
from seqloom.types import move


@dataclass(frozen=True)
class Validation:
    """Measures by name, and a few examples of what the model answers."""

    measures: dict[str, float]
    samples: tuple[str, ...] = ()
    answered: int | None = None
    """How many records were answered, where that is not all of them."""


def validate(
    learner: Learner, batches: Batches[Any], prepared: Prepared, judge: Judge, should_stop: Callable[[], bool]
) -> Validation | None:
    """One pass over all batches of an epoch, shared out among the ranks; None if it was asked to stop."""
    model, task, group = learner.model, learner.task, learner.group
    asked = frozenset(metric.name for metric in judge.metrics)
    context = Context(prepared.tokenizer, prepared.labels, asked, prepared.seen)
    training = model.training
    model.eval()
    total, count, stopping = 0.0, 0, False
    answers: list[tuple[int, Answers]] = []

    with unsharded(learner.objective), torch.inference_mode():
        for step in range(group.rank, len(batches), group.size):
            batch = move(batches.build(step), learner.device)
            loss = task.compute_loss(model, batch)
            total, count = total + float(loss.total), count + loss.count
            if task.max_answers is None and asked:
                answers.append((step, task.answer(model, batch, loss, context)))
            if stopping := should_stop():
                break
        if task.max_answers is not None and asked and group.is_main:
            for step in range(len(batches)):
                if stopping or sum(len(found.given) for _, found in answers) >= task.max_answers:
                    break
                batch = move(batches.build(step), learner.device)
                answers.append((step, task.answer(model, batch, task.compute_loss(model, batch), context)))
                stopping = should_stop()
    model.train(training)
    total, summed, stops = group.add(total, float(count), float(stopping))
    if stops:
        return None
    if not summed:
        raise DataError("no record of data.valid has anything to predict, so nothing can be judged by it")
    measures = {"loss": total / summed}
    if task.predicts_tokens:
        measures["perplexity"] = exponentiate(measures["loss"])
    everyone = sorted((pair for pairs in group.gather(answers) for pair in pairs), key=lambda pair: pair[0])
    wanted = [one for _, found in everyone for one in found.wanted]
    given = [one for _, found in everyone for one in found.given]
    measures |= {metric.name: metric.measure(wanted, given).value for metric in judge.metrics if given}
    if judge.name not in measures:
        raise DataError(f"no record of data.valid is left to measure {judge.name} by; see what was left out above")
    samples = tuple(sample for _, found in everyone[:1] for sample in found.samples[:3])
    partial = task.max_answers is not None and len(given) < sum(batches.samples.sizes)
    return Validation(measures, samples, len(given) if partial and given else None)
