"""How good a model is on data it does not learn from: its loss, and the measure its task is known by.

Translations are judged by the loss all the same: the BLEU of a few sentences differs more from one checkpoint to the
next than the models do.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.data.batching import Batches, LabelledBatch, TaggedBatch
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search
from seqloom.metrics.correlation import correlate_sums
from seqloom.metrics.likelihood import exponentiate
from seqloom.metrics.translation import measure_translation
from seqloom.models.labelling import Classifier, Tagger
from seqloom.models.seq2seq import Seq2Seq
from seqloom.text import Tokenizer
from seqloom.training.objectives import compute_loss
from seqloom.training.sharding import put_together
from seqloom.training.step import Learner
from seqloom.types import PairBatch, TokenBatch, move

_TRANSLATED = 200  # sentences of the validation data that are translated while training
_LOWER_IS_BETTER = ("loss", "perplexity")
_JUDGES = ("accuracy", "correlation")


@dataclass(frozen=True)
class Evaluation:
    """Measures by name, and a few examples of what the model does."""

    measures: dict[str, float]
    samples: tuple[str, ...] = ()

    def score(self, judge_by: str | None) -> list[float]:
        """What early stopping and the best checkpoint go by: a measure, then the loss; higher is better."""
        names = [judge_by] if judge_by else [name for name in _JUDGES if name in self.measures]
        return [(-1.0 if name in _LOWER_IS_BETTER else 1.0) * self.measures[name] for name in (*names, "loss")]


def list_measures(model: nn.Module, labels: Sequence[str]) -> tuple[str, ...]:
    """What a model can be judged by."""
    match model:
        case Classifier() if tuple(labels) == ("",):
            return ("loss", "correlation")
        case Classifier() | Tagger():
            return ("loss", "accuracy")
        case Seq2Seq():
            return ("loss", "perplexity", "bleu")
        case _:
            return ("loss", "perplexity")


def evaluate(
    learner: Learner, batches: Batches[Any], tokenizer: Tokenizer, should_stop: Callable[[], bool]
) -> Evaluation | None:
    """One pass over all batches of an epoch, dealt out to the ranks; None if it was told to stop."""
    model, team, device = learner.model, learner.team, learner.device
    training = model.training
    model.eval()
    sums: dict[str, float] = defaultdict(float)
    asked_to_stop = False
    with put_together(learner.objective), torch.inference_mode():
        for step in range(team.rank, len(batches), team.size):
            batch = move(batches.build(step), device)
            loss = compute_loss(model, batch)
            found: dict[str, float] = {"loss": float(loss.total), "count": loss.count}
            match model, batch:
                case ((Classifier() | Tagger()), (LabelledBatch() | TaggedBatch())):
                    found |= _judge_answers(model, batch)
            for name, value in found.items():
                sums[name] += value
            if asked_to_stop := should_stop():
                break
        translated: list[tuple[str, str, str]] = []
        if isinstance(model, Seq2Seq) and team.leads:
            for step in range(len(batches)):
                if asked_to_stop or len(translated) >= _TRANSLATED:
                    break
                translated += translate_batch(model, move(batches.build(step), device), tokenizer)
                asked_to_stop = should_stop()
    model.train(training)
    names = ("loss", "count", *_ANSWERS)
    answers, references = [row[1] for row in translated], [row[2] for row in translated]
    bleu = measure_translation("bleu", answers, [references]).value if translated else 0.0
    *values, bleu, stops = team.add(*(sums[name] for name in names), bleu, float(asked_to_stop))
    if stops:
        return None
    measures = _compute_measures(model, dict(zip(names, values, strict=True)), bleu)
    return Evaluation(measures, tuple(f"{source} → {answer}" for source, answer, _ in translated[:3]))


_ANSWERS = ("right", "quantities", "x", "y", "xx", "yy", "xy")


def _judge_answers(model: Classifier | Tagger, batch: LabelledBatch | TaggedBatch) -> dict[str, float]:
    """How many answers are right; for quantities x where y was wanted, the sums that a correlation is made of."""
    scores: Tensor = model(batch.text)
    match batch:
        case LabelledBatch(labels=y) if y.is_floating_point():
            x, y = scores.squeeze(1).double(), y.double()
            products = {"xx": float(x @ x), "yy": float(y @ y), "xy": float(x @ y)}
            return {"quantities": len(x), "x": float(x.sum()), "y": float(y.sum()), **products}
        case LabelledBatch(labels=labels):
            return {"right": int((scores.argmax(-1) == labels).sum())}
        case TaggedBatch(tags=tags, tagged=tagged):
            return {"right": int((scores.argmax(-1) == tags)[tagged].sum())}


def _compute_measures(model: nn.Module, sums: dict[str, float], bleu: float) -> dict[str, float]:
    count = max(sums["count"], 1.0)
    loss = sums["loss"] / count
    match model:
        case Classifier() | Tagger() if sums["quantities"]:
            return {"loss": loss, "correlation": correlate_sums(*(sums[name] for name in _ANSWERS[1:]))}
        case Classifier() | Tagger():
            return {"loss": loss, "accuracy": sums["right"] / count}
    measures = {"loss": loss, "perplexity": exponentiate(loss)}
    return {**measures, "bleu": bleu} if isinstance(model, Seq2Seq) else measures


def translate_batch(model: Seq2Seq, batch: PairBatch, tokenizer: Tokenizer) -> list[tuple[str, str, str]]:
    """Each source, what the model makes of it, and the reference."""
    roles, source = tokenizer.roles, batch.source
    assert roles.bos is not None
    assert roles.eos is not None
    longest = 2 * source.ids.shape[1] + 10
    state = model.start(model.encode(source), longest)
    requests = [Request(roles.bos, longest)] * len(source.ids)
    rows = [best.ids for best, *_ in search(model.step, state, requests, SearchOptions(), end_id=roles.eos)]
    texts = [tokenizer.decode_batch(part) for part in (_real(source), rows, _real(batch.target))]
    return list(zip(*texts, strict=True))


def _real(batch: TokenBatch) -> Sequence[list[int]]:
    return [ids[mask].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]
