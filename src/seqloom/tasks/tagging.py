"""Tagging: one label for each word."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import nn

from seqloom.config.batches import Frame, SentenceBatches
from seqloom.config.data import TaggedData
from seqloom.data.batching import TaggedBatch, TaggedSamples
from seqloom.data.columns import Column, TaggedColumn
from seqloom.data.examples import Example
from seqloom.data.shards import Records
from seqloom.decode.viterbi import find_best_tags
from seqloom.errors import ConfigError
from seqloom.metrics.classification import TAG_ACCURACY, count_confusions, note_unknown, score_labels
from seqloom.metrics.measure import Metric
from seqloom.metrics.spans import SPAN_F1, find_transitions, holds_spans, is_iob1, score_spans
from seqloom.models.labelling import Tagger
from seqloom.models.stacks import build_encoder
from seqloom.nn.packing import find_places, pick
from seqloom.tasks.base import Answers, Context, Details, Loss, Sample, Task, Usage
from seqloom.tasks.bidirectional_language_model import FeaturedModel
from seqloom.text import Tokenizer
from seqloom.types import Seen


class TaggingModelConfig(FeaturedModel):
    """One answer for each word."""

    def build(self, vocab_size: int, num_outputs: int | None = None) -> Tagger:
        """An encoder and a head."""
        rows, encoder = self.count_rows(vocab_size), build_encoder(self.encoder)
        embedding = self.build_embedding(rows, encoder.input_dim)
        features = self.build_features(rows, encoder.input_dim)
        return Tagger(embedding, encoder, num_outputs or rows, self.encoder.dropout, features)


class TaggingTask(Task):
    """Label every word."""

    task: Literal["tagging"] = "tagging"
    data: TaggedData
    """Where the records are."""
    frame: Frame = Frame(before=("cls",), after=("sep",))
    """The special tokens around each sentence."""
    batch: SentenceBatches = SentenceBatches()
    """How records become batches."""
    model: TaggingModelConfig = TaggingModelConfig()
    """What is trained."""

    example_files: ClassVar = {"format": "conll", "files": "train.conll"}
    verbs: ClassVar = ("tag", "embed")
    evaluated_by: ClassVar = "tag"

    def list_usages(self) -> list[Usage]:
        """Tagging."""
        first = Usage("tag the words of a text", "echo {text} | seqloom tag {run}", "model.tag({text}).tags")
        return [first, *super().list_usages()]

    def frames(self) -> dict[str, Frame]:
        """The words of a sentence."""
        return {"words": self.frame}

    def find_labels(self, examples: Iterable[Example]) -> tuple[str, ...]:
        """All tags of the training data, by name."""
        return tuple(sorted({tag for example in examples for tag in example.values["tags"]}))

    def find_seen(
        self, examples: Iterable[Example], labels: Sequence[str], records: Records, tokenizer: Tokenizer
    ) -> Seen:
        """Whether tags that look like BIO are IOB1."""
        return Seen(iob1=holds_spans(labels) and is_iob1(example.values["tags"] for example in examples))

    def make_columns(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> dict[str, Column]:
        """Words with their tags."""
        return {"words": TaggedColumn(tokenizer, labels)}

    def make_samples(self, records: Records, tokenizer: Tokenizer, *, training: bool) -> TaggedSamples:
        """Sentences with a tag for each word."""
        self.make_segmentation(tokenizer, training=training)
        return TaggedSamples(records, self.find_frames(tokenizer)["words"], self.limit, tokenizer.roles.pad or 0)

    def check_segmentation(self) -> None:
        """A tag belongs to the first token of its word."""
        raise ConfigError("tokenizer.dropout: tagged words cannot be cut anew; set it to 0")

    def compute_loss(self, network: nn.Module, batch: TaggedBatch, *, smoothing: float = 0.0) -> Loss:
        """The cross-entropy of the tags."""
        places = find_places(batch.known.tagged, batch.tags.device)
        scores, wanted = pick(network(batch.text), places), pick(batch.tags, places)
        return Loss(F.cross_entropy(scores, wanted, reduction="sum", label_smoothing=smoothing), len(wanted))

    def metrics(self, labels: Sequence[str]) -> tuple[Metric, ...]:
        """How many tags are right and, where tags mark spans or are not known yet, how many spans."""
        return (TAG_ACCURACY, SPAN_F1) if not labels or holds_spans(labels) else (TAG_ACCURACY,)

    def default_metric(self, labels: Sequence[str]) -> str:
        """The F1 of spans, where tags mark them: most words are in none, so even no answer at all is accurate."""
        return (SPAN_F1 if holds_spans(labels) else TAG_ACCURACY).name

    def answer(self, network: nn.Module, batch: TaggedBatch, loss: Loss, context: Context) -> Answers:
        """The tags of each sentence by name, in a sequence that their scheme allows."""
        rules = find_transitions(context.labels, iob1=context.seen is not None and context.seen.iob1)
        scores, tagged = network(batch.text).float().cpu(), batch.tagged.cpu()

        def name(numbers: list[int]) -> tuple[str, ...]:
            return tuple(context.labels[number] for number in numbers)

        return Answers(
            [name(tags[words].tolist()) for tags, words in zip(batch.tags.cpu(), tagged, strict=True)],
            [name(find_best_tags(row[words].numpy(), rules)) for row, words in zip(scores, tagged, strict=True)],
        )

    def show(self, network: nn.Module, batch: TaggedBatch, context: Context) -> list[Sample]:
        """Sentences, and their words with tags: `the/DET cat/NOUN`."""
        found = self.answer(network, batch, Loss(batch.tags.sum(), 0), context)
        samples = []
        for ids, mask, tagged, given, wanted in zip(
            batch.text.ids, batch.text.mask, batch.tagged, found.given, found.wanted, strict=True
        ):
            edges = [*tagged.nonzero().flatten().tolist(), int(mask.sum())]  # a part of a long record may have no word
            words = context.tokenizer.decode_batch([ids[start:end].tolist() for start, end in pairwise(edges)])
            words = [word.strip() for word in words]
            tags = (" ".join(map("/".join, zip(words, answer, strict=True))) for answer in (given, wanted))
            samples.append(Sample(" ".join(words), *tags))
        return samples

    def break_down(
        self, wanted: Sequence[Sequence[str]], given: Sequence[Sequence[str]], labels: Sequence[str]
    ) -> Details:
        """Each kind of span, or each tag, by itself, and which are taken for which."""
        flat, answers = ([tag for row in rows for tag in row] for rows in (wanted, given))
        scores = score_spans(wanted, given) if holds_spans(labels) else score_labels(flat, answers)
        return Details(scores, count_confusions(flat, answers), note_unknown(flat, labels))
