"""Classification: one label, or one quantity, for a text or a pair of texts."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import nn

from seqloom.config.batches import Frame, SampleBatches
from seqloom.config.data import LabelledData
from seqloom.config.stacks import Activation
from seqloom.data.batching import LabelledBatch, LabelledSamples
from seqloom.data.columns import Column, LabelColumn, NumberColumn
from seqloom.data.examples import Example
from seqloom.data.shards import Records
from seqloom.metrics.classification import ACCURACY, MACRO_F1, count_confusions, note_unknown, score_labels
from seqloom.metrics.correlation import PEARSON, SPEARMAN
from seqloom.metrics.measure import Metric
from seqloom.models.labelling import Classifier
from seqloom.models.stacks import build_encoder
from seqloom.nn.attention import Pool
from seqloom.tasks.base import Answers, Context, Details, Loss, Sample, Task, Usage, list_rows
from seqloom.tasks.bidirectional_language_model import FeaturedModel
from seqloom.text import Tokenizer


class ClassificationModelConfig(FeaturedModel):
    """One answer for a text, or for a pair of texts."""

    pooling: Literal["attention", "mean", "max", "first"] = "attention"
    """How the states of a text become one vector."""
    head_activation: Activation | None = Field(None, examples=["tanh"])
    """The activation function of a layer between that vector and the answer; absent: there is no such layer."""

    def build(self, vocab_size: int, num_outputs: int | None = None) -> Classifier:
        """An encoder, a pooling and a head."""
        rows, encoder = self.count_rows(vocab_size), build_encoder(self.encoder)
        return Classifier(
            self.build_embedding(rows, encoder.input_dim),
            encoder,
            Pool(self.pooling, encoder.output_dim),
            rows if num_outputs is None else num_outputs,
            self.encoder.dropout,
            self.head_activation,
            self.build_features(rows, encoder.input_dim),
        )


class ClassificationTask(Task):
    """Label texts, or pairs of texts."""

    task: Literal["classification"] = "classification"
    data: LabelledData
    """Where the records are."""
    frame: Frame = Frame(before=("cls",), after=("sep",))
    """The special tokens around each text."""
    second_frame: Frame = Frame(after=("sep",))
    """The special tokens around the second text of a pair."""
    reads_pairs: bool = False
    """Whether the model reads both single texts and pairs, as imported classifiers do; in training, the data says."""
    batch: SampleBatches = SampleBatches()
    """How records become batches."""
    model: ClassificationModelConfig = ClassificationModelConfig()
    """What is trained."""

    example_files: ClassVar = {"format": "tsv", "files": "train.tsv"}
    verbs: ClassVar = ("classify", "embed")
    evaluated_by: ClassVar = "classify"

    @property
    def predicts_numbers(self) -> bool:
        """Whether a label is a quantity."""
        return self.data.labels == "numbers"

    def list_usages(self) -> list[Usage]:
        """Labelling a text or a pair."""
        what, echo, texts = "label a text", "echo {text}", "{text}"
        if "second" in self.frames():
            what, echo, texts = "label a pair", "printf '%s\\t%s\\n' {text} {text}", "{text}, {text}"
        answer = "value" if self.predicts_numbers else "label"
        first = Usage(what, f"{echo} | seqloom classify {{run}}", f"model.classify({texts}).{answer}")
        return [first, *super().list_usages()]

    def frames(self) -> dict[str, Frame]:
        """One text, or two."""
        columns = (getattr(corpus, "columns", None) for corpus in self.data.train)
        paired = any(getattr(found, "second", None) is not None for found in columns)
        return {"text": self.frame, **({"second": self.second_frame} if paired else {})}

    def find_labels(self, examples: Iterable[Example]) -> tuple[str, ...]:
        """All labels of the training data, by name; one without a name where they are quantities."""
        return ("",) if self.predicts_numbers else tuple(sorted({str(example.values["label"]) for example in examples}))

    def make_columns(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> dict[str, Column]:
        """The texts and their label."""
        label: Column = NumberColumn() if self.predicts_numbers else LabelColumn(labels)
        return {**super().make_columns(tokenizer, labels), "label": label}

    def make_samples(self, records: Records, tokenizer: Tokenizer, *, training: bool) -> LabelledSamples:
        """Texts with their labels."""
        frames, segmentation = self.find_frames(tokenizer), self.make_segmentation(tokenizer, training=training)
        return LabelledSamples(records, [frames], self.limit, tokenizer.roles.pad or 0, segmentation)

    def compute_loss(self, network: nn.Module, batch: LabelledBatch, *, smoothing: float = 0.0) -> Loss:
        """The cross-entropy of the labels, or the squared error of the quantities."""
        scores, labels = network(batch.text), batch.labels
        if labels.is_floating_point():
            return Loss(F.mse_loss(scores.squeeze(1), labels, reduction="sum"), len(labels))
        return Loss(F.cross_entropy(scores, labels, reduction="sum", label_smoothing=smoothing), len(labels))

    def metrics(self, labels: Sequence[str]) -> tuple[Metric, ...]:
        """How many labels are right, or how far quantities go together."""
        return (PEARSON, SPEARMAN) if self.predicts_numbers else (ACCURACY, MACRO_F1)

    def default_metric(self, labels: Sequence[str]) -> str:
        """The first of them."""
        return self.metrics(labels)[0].name

    def answer(self, network: nn.Module, batch: LabelledBatch, loss: Loss, context: Context) -> Answers:
        """Labels by name, or quantities."""
        scores = network(batch.text)
        if self.predicts_numbers:
            return Answers(batch.labels.tolist(), scores.squeeze(1).tolist())
        return Answers(
            *([context.labels[number] for number in row.tolist()] for row in (batch.labels, scores.argmax(-1)))
        )

    def show(self, network: nn.Module, batch: LabelledBatch, context: Context) -> list[Sample]:
        """Texts with their labels, or quantities with three digits."""
        found = self.answer(network, batch, Loss(batch.labels.sum(), 0), context)
        given, wanted = (
            [f"{value:.3g}" if self.predicts_numbers else value for value in answers]
            for answers in (found.given, found.wanted)
        )
        return list(map(Sample, context.tokenizer.decode_batch(list_rows(batch.text)), given, wanted))

    def break_down(self, wanted: Sequence[str], given: Sequence[str], labels: Sequence[str]) -> Details:
        """Each label by itself, and which are taken for which."""
        if self.predicts_numbers:
            return Details()
        return Details(score_labels(wanted, given), count_confusions(wanted, given), note_unknown(wanted, labels))
