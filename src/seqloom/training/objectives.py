"""What a model is trained to do: each objective is a sum over predictions and their number.

Sums and counts, never means: the loop divides once, by the count over all parts of a batch and all processes. A mean of
means would weigh a short part as much as a long one.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.data.batching import LabelledBatch, TaggedBatch
from seqloom.data.masking import MaskedBatch
from seqloom.errors import ConfigError, SeqloomError
from seqloom.models.labelling import Classifier, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.cross_entropy import linear_cross_entropy
from seqloom.training.guidance import watch_attention
from seqloom.types import PairBatch, TokenBatch

Batch = TokenBatch | PairBatch | MaskedBatch | LabelledBatch | TaggedBatch


@dataclass(frozen=True)
class Loss:
    """A sum over predictions and how many there were."""

    total: Float[Tensor, ""]
    count: int


class Objective(nn.Module):
    """A model and what it is trained to do, as one module: what can be spread over processes is a module."""

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> tuple[Float[Tensor, ""], int]:
        """The sum over predictions, and their number."""
        loss = compute_loss(self.model, batch, smoothing=self.smoothing)
        return loss.total, loss.count


def compute_loss(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Loss:
    """The objective of a model on a batch of its kind, in natural logarithms (squares for quantities)."""
    match model, batch:
        case Seq2Seq(), PairBatch(source=source, target=target, alignment=alignment):
            real = target.mask[:, 1:]
            with nullcontext() if alignment is None else watch_attention(model) as guidance:
                states = model(PairBatch(source, TokenBatch(target.ids[:, :-1], real)))
            loss = _predict(model.output, states[real], target.ids[:, 1:][real], smoothing)
            if alignment is None or guidance is None:
                return loss
            return Loss(loss.total + guidance.measure(alignment), loss.count)
        case LanguageModel(), TokenBatch():
            seen, real = _shift(batch)
            return _predict(model.output, model(seen)[real], batch.ids[:, 1:][real], smoothing)
        case MaskedLanguageModel(), MaskedBatch(text=text, hidden=hidden, targets=targets):
            return _predict(model.output, model(text, hidden), targets[hidden], smoothing)
        case BidirectionalLanguageModel(), TokenBatch():
            ahead, behind = model(batch)
            real = _joined(batch)
            states = torch.cat([ahead[:, :-1][real], behind[:, 1:][real]])
            targets = torch.cat([batch.ids[:, 1:][real], batch.ids[:, :-1][real]])
            return _predict(model.output, states, targets, smoothing)
        case Classifier(), LabelledBatch(text=text, labels=labels):
            scores = model(text)
            if labels.is_floating_point():
                return Loss(F.mse_loss(scores.squeeze(1), labels, reduction="sum"), len(labels))
            return Loss(F.cross_entropy(scores, labels, reduction="sum", label_smoothing=smoothing), len(labels))
        case Tagger(), TaggedBatch(text=text, tags=tags, tagged=tagged):
            scores, wanted = model(text)[tagged], tags[tagged]
            return Loss(F.cross_entropy(scores, wanted, reduction="sum", label_smoothing=smoothing), len(wanted))
        case _:
            raise SeqloomError(f"a {type(model).__name__} cannot be trained on a {type(batch).__name__}")


def _predict(output: nn.Module | None, states: Tensor, targets: Tensor, smoothing: float) -> Loss:
    if output is None:
        raise ConfigError("model.head = false: this model only embeds, there is nothing to train it by")
    return Loss(linear_cross_entropy(output, states, targets, smoothing=smoothing), len(targets))  # type: ignore[arg-type]


def _shift(batch: TokenBatch) -> tuple[TokenBatch, Tensor]:
    """What a causal model reads, and where the token after is one to predict."""
    documents = None if batch.documents is None else batch.documents[:, :-1]
    return TokenBatch(batch.ids[:, :-1], batch.mask[:, :-1], documents), _joined(batch)


def _joined(batch: TokenBatch) -> Tensor:
    """Where a token and the next one are real and of the same document."""
    both = batch.mask[:, :-1] & batch.mask[:, 1:]
    return both if batch.documents is None else both & (batch.documents[:, :-1] == batch.documents[:, 1:])
