"""How good a model is on data it does not learn from: its loss, and the metrics that `eval` measures its task by."""

from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Any

import torch

from seqloom.data.batching import Batches
from seqloom.errors import DataError
from seqloom.metrics.likelihood import exponentiate
from seqloom.tasks.base import Answers, Context, Details, Judge, Sample, Task
from seqloom.training.distributed import unsharded
from seqloom.training.prepare import Prepared
from seqloom.training.step import Learner
from seqloom.types import move

_SHOWN = 3
"""How many records are answered for a person to read."""
_LABELS, _CONFUSIONS = 200, 30
"""How many labels, and how many pairs of labels that are taken for each other, the log keeps."""


@dataclass(frozen=True)
class Validation:
    """Measures by name, and a few examples of what the model answers."""

    measures: dict[str, float]
    samples: tuple[Sample, ...] = ()
    """Empty but on the main rank."""
    sample: str = ""
    """Which records the metrics besides the loss are of, where those are not all."""
    details: Details = field(default_factory=Details)
    """Each label by itself, where there are labels."""


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
            for number, batch in enumerate(batches.spread(task.max_answers)):
                if stopping:
                    break
                batch = move(batch, learner.device)
                answers.append((number, task.answer(model, batch, task.compute_loss(model, batch), context)))
                stopping = should_stop()
        shown = batches.spread(_SHOWN) if group.is_main and not stopping else ()
        samples = [sample for batch in shown for sample in task.show(model, move(batch, learner.device), context)]
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
    details = task.break_down(wanted, given, prepared.labels)
    return Validation(measures, tuple(samples), describe_sample(task, batches), details)


def list_details(details: Details) -> dict[str, Any]:
    """The scores of labels and what is taken for what, as the log keeps them; nothing where there are no labels."""
    if not details.labels:
        return {}
    most = sorted(details.labels, key=lambda score: -score.wanted)[:_LABELS]
    confused = [
        (wanted, given, count)
        for wanted, row in details.confusions.items()
        for given, count in row.items()
        if wanted != given
    ]
    notes = list(details.notes)
    if len(details.labels) > len(most):
        notes.append(f"the {len(most):,} most frequent of {len(details.labels):,} labels are listed")
    if len(confused) > _CONFUSIONS:
        notes.append(f"the {_CONFUSIONS} most frequent of {len(confused):,} confusions are listed")
    return {
        "labels": [[value if isinstance(value, str) else round(value, 6) for value in astuple(one)] for one in most],
        "confusions": sorted(confused, key=lambda one: -one[2])[:_CONFUSIONS],
        "notes": notes,
    }


def describe_sample(task: Task, batches: Batches[Any]) -> str:
    """Which records the metrics besides the loss are of, where those are not all."""
    total = sum(batches.samples.sizes)
    if task.max_answers is None or task.max_answers >= total:
        return ""
    return f"{task.max_answers:,} of {total:,} records, evenly drawn"
