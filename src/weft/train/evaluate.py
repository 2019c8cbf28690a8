"""How good a model is on data it does not learn from: its loss, and the measure its task is known by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sacrebleu
import torch
from torch import Tensor, nn

from weft.data.batching import Batches, LabelledBatch, TaggedBatch
from weft.decode.options import Request, SearchOptions
from weft.decode.search import search
from weft.models.classifier import Classifier
from weft.models.seq2seq import Seq2Seq
from weft.models.tagger import Tagger
from weft.text import Tokenizer
from weft.train.device import move
from weft.train.objectives import compute_loss
from weft.types import PairBatch, TokenBatch

_TRANSLATED = 200  # sentences of the validation data that are translated while training


@dataclass(frozen=True)
class Evaluation:
    """Measures by name, and a few examples of what the model does."""

    measures: dict[str, float]
    samples: tuple[str, ...] = ()

    @property
    def score(self) -> list[float]:
        """What early stopping and the best checkpoint go by: the task's measure, then the loss; higher is better."""
        return [self.measures[name] for name in ("bleu", "accuracy") if name in self.measures] + [
            -self.measures["loss"]
        ]


@torch.inference_mode()
def evaluate(model: nn.Module, batches: Batches[Any], tokenizer: Tokenizer) -> Evaluation:
    """One pass over all batches of an epoch."""
    training = model.training
    model.eval()
    total, count, right = 0.0, 0, 0
    translated: list[tuple[str, str, str]] = []
    for step in range(len(batches)):
        batch = move(batches.build(step), next(model.parameters()).device)
        loss = compute_loss(model, batch)
        total, count = total + float(loss.total), count + loss.count
        match model, batch:
            case ((Classifier() | Tagger()), (LabelledBatch() | TaggedBatch())):
                right += _count_right(model, batch)
            case Seq2Seq(), PairBatch() if len(translated) < _TRANSLATED:
                translated += translate_batch(model, batch, tokenizer)
    model.train(training)
    measures = {"loss": total / max(count, 1)}
    match model:
        case Classifier() | Tagger() if right:
            measures["accuracy"] = right / count
        case Seq2Seq():
            answers, references = [row[1] for row in translated], [row[2] for row in translated]
            measures["perplexity"] = math.exp(min(measures["loss"], 50.0))
            measures["bleu"] = sacrebleu.corpus_bleu(answers, [references], force=True).score
        case _ if not isinstance(model, Classifier):
            measures["perplexity"] = math.exp(min(measures["loss"], 50.0))
    return Evaluation(measures, tuple(f"{source} → {answer}" for source, answer, _ in translated[:3]))


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


def _count_right(model: Classifier | Tagger, batch: LabelledBatch | TaggedBatch) -> int:
    scores: Tensor = model(batch.text)
    match batch:
        case LabelledBatch(labels=labels):
            return 0 if labels.is_floating_point() else int((scores.argmax(-1) == labels).sum())
        case TaggedBatch(tags=tags, tagged=tagged):
            return int((scores.argmax(-1) == tags)[tagged].sum())
