"""Masked language models: predict hidden tokens from both sides. Devlin et al. 2019.

L = − Σ_{t hidden} log P(x_t | the rest)
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import nn

from seqloom.config.batches import Frame, Masking, PackedBatches, TokenMasking
from seqloom.config.stacks import Activation, TransformerEncoderConfig
from seqloom.data.batching import MaskedSamples
from seqloom.data.masking import MaskedBatch, build_masker
from seqloom.data.shards import Records
from seqloom.metrics.likelihood import PSEUDO_PERPLEXITY
from seqloom.metrics.measure import Metric
from seqloom.models.language_models import MaskedLanguageModel
from seqloom.models.stacks import build_encoder
from seqloom.nn.embeddings import OutputLayer
from seqloom.nn.packing import find_places, pick
from seqloom.tasks.base import Answers, Context, Loss, Sample, Usage, list_rows
from seqloom.tasks.language_model import Targets, TextTask, predict_tokens
from seqloom.tasks.model import SegmentedModel, TextVector
from seqloom.text import Tokenizer
from seqloom.types import TokenBatch


class MaskedLanguageModelConfig(SegmentedModel):
    """Predicts hidden tokens from both sides."""

    tie_output: bool = True
    """Share the table of input embeddings with the output layer."""
    head: bool = True
    """Whether there is a head that predicts; a model without one only embeds."""
    head_activation: Activation = "gelu"
    """The activation function of the head."""
    embed: TextVector = TextVector()
    """How a text becomes one vector."""

    @model_validator(mode="after")
    def _sees_both_sides(self) -> Self:
        if self.encoder.direction != "both":
            raise ValueError(
                f'a masked language model sees both sides, but encoder.direction = "{self.encoder.direction}"'
            )
        return self

    def build(self, vocab_size: int, num_outputs: int | None = None) -> MaskedLanguageModel:
        """An encoder and a head."""
        rows, encoder = self.count_rows(vocab_size), build_encoder(self.encoder)
        embedding = self.build_embedding(rows, encoder.input_dim)
        output = OutputLayer(encoder.output_dim, rows, embedding if self.tie_output else None)
        epsilon = self.encoder.norm_epsilon if isinstance(self.encoder, TransformerEncoderConfig) else None
        return MaskedLanguageModel(embedding, encoder, output if self.head else None, self.head_activation, epsilon)


class MaskedLanguageModelTask(TextTask):
    """Fill in hidden words; the start of many fine-tuned models."""

    task: Literal["masked-language-model"] = "masked-language-model"
    frame: Frame = Frame(before=("cls",), after=("sep",))
    """The special tokens around each text."""
    batch: PackedBatches = PackedBatches()
    """How text becomes batches."""
    masking: Masking = TokenMasking()
    """Which tokens are hidden: tokens, words or spans."""
    model: MaskedLanguageModelConfig = MaskedLanguageModelConfig()
    """What is trained."""

    verbs: ClassVar = ("fill", "score", "embed")
    max_answers: ClassVar = 200

    def list_usages(self) -> list[Usage]:
        """Filling in what is hidden."""
        first = Usage(
            "fill in hidden words", "echo 'a [MASK] text' | seqloom fill {run}", 'model.fill("a [MASK] text").text'
        )
        return [first, *super().list_usages()]

    def make_samples(self, records: Records, tokenizer: Tokenizer, *, training: bool) -> MaskedSamples:
        """Rows of text with some of their tokens hidden."""
        rows = super().make_samples(records, tokenizer, training=training)
        return MaskedSamples(rows, build_masker(self.masking, tokenizer, self.train.seed))

    def compute_loss(self, network: nn.Module, batch: MaskedBatch, *, smoothing: float = 0.0) -> Loss:
        """The cross-entropy of the hidden tokens."""
        assert isinstance(network, MaskedLanguageModel)
        hidden = batch.known.hidden
        places = find_places(hidden, batch.targets.device)
        host = None if batch.host is None else batch.host.targets[hidden]
        wanted = Targets(places, pick(batch.targets, places), host)
        return predict_tokens(network.output, network(batch.text, places), wanted, smoothing)

    def metrics(self, labels: Sequence[str]) -> tuple[Metric, ...]:
        """How well each token is predicted from all others."""
        return (PSEUDO_PERPLEXITY,)

    def answer(self, network: nn.Module, batch: MaskedBatch, loss: Loss, context: Context) -> Answers:  # type: ignore[override]
        """The log-probability of each row, its tokens hidden one at a time (Salazar et al. 2020, eq. 1)."""
        if PSEUDO_PERPLEXITY.name not in context.asked:
            return Answers()
        assert isinstance(network, MaskedLanguageModel)
        assert network.output is not None
        roles, found = context.tokenizer.roles, Answers()
        framing = (roles.pad, roles.bos, roles.eos, roles.mask, roles.cls, roles.sep)
        special = torch.tensor([id for id in framing if id is not None])
        whole = torch.where(batch.hidden, batch.targets, batch.text.ids)
        for row, ids in enumerate(whole):
            places = (batch.text.mask[row] & ~torch.isin(ids, special.to(ids.device))).nonzero().squeeze(1)
            documents = None if batch.text.documents is None else batch.text.documents[row].expand(len(places), -1)
            hidden = torch.zeros(len(places), len(ids), dtype=torch.bool, device=ids.device)
            hidden[torch.arange(len(places)), places] = True
            masked = torch.where(hidden, torch.full_like(ids, roles.mask or 0), ids)
            text = TokenBatch(masked, batch.text.mask[row].expand(len(places), -1), documents)
            scores = network.output(network(text, hidden)).float().log_softmax(-1)
            found.given.append(float(scores.gather(1, ids[places].unsqueeze(1)).sum()))
            found.wanted.append((len(places), 0))
        return found

    def show(self, network: nn.Module, batch: MaskedBatch, context: Context) -> list[Sample]:
        """Texts with hidden tokens, and the most probable one for each."""
        assert isinstance(network, MaskedLanguageModel)
        assert network.output is not None
        tokenizer, roles, samples = context.tokenizer, context.tokenizer.roles, []
        text, hidden = batch.text, batch.hidden
        text = TokenBatch(text.ids.masked_fill(hidden, roles.mask or 0), text.mask, text.documents)  # all of them
        scores = network.output(network(text, hidden))[:, : tokenizer.vocab_size]  # other rows are no tokens
        best = scores.argmax(-1).split(hidden.sum(1).tolist())
        around = {roles.bos, roles.eos, roles.cls, roles.sep}
        for ids, places, targets, filled in zip(list_rows(text), hidden, batch.targets, best, strict=True):
            shown = tokenizer.decode([id for id in ids if id not in around], special=True)
            answers = (" · ".join(map(tokenizer.token, found.tolist())) for found in (filled, targets[places]))
            samples.append(Sample(shown, *answers))
        return samples
