"""Language models: predict each token from those before it.

L = − Σ_t log P(x_t | x_<t)
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from seqloom.config.base import Names
from seqloom.config.batches import Frame, TextBatches
from seqloom.config.data import TextData
from seqloom.config.stacks import DecoderConfig, TransformerDecoderConfig
from seqloom.data.batching import Samples, build_text_samples
from seqloom.data.shards import Records
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search
from seqloom.errors import ConfigError
from seqloom.metrics.likelihood import BITS_PER_BYTE, PERPLEXITY
from seqloom.metrics.measure import Metric
from seqloom.models.language_models import LanguageModel
from seqloom.models.stacks import build_decoder
from seqloom.nn.cross_entropy import linear_cross_entropy
from seqloom.nn.embeddings import OutputLayer
from seqloom.nn.packing import find_places, pick
from seqloom.tasks.base import Answers, Context, Loss, Sample, Task, Usage, find_ids, list_rows
from seqloom.tasks.model import ModelSection
from seqloom.text import Tokenizer
from seqloom.types import TokenBatch


class LanguageModelConfig(ModelSection):
    """Predicts each token from those before it."""

    decoder: DecoderConfig = TransformerDecoderConfig()
    """The stack that reads the text so far: transformer, recurrent or convolutional."""
    tie_output: bool = True
    """Share the table of input embeddings with the output layer."""
    output_bias: bool = False
    """Whether the output layer learns a number for each token; other programs' language models have none."""

    def build(self, vocab_size: int, num_outputs: int | None = None) -> LanguageModel:
        """A decoder without a source."""
        rows, decoder = self.count_rows(vocab_size), build_decoder(self.decoder, None)
        embedding = self.build_embedding(rows, decoder.input_dim)
        tied = embedding if self.tie_output else None
        return LanguageModel(embedding, decoder, OutputLayer(decoder.output_dim, rows, tied, bias=self.output_bias))


class TextTask(Task):
    """What the tasks that learn from plain text share."""

    data: TextData
    """Where the records are."""
    frame: Frame = Frame(after=("eos",))
    """The special tokens around each text."""
    batch: TextBatches = TextBatches()
    """How text becomes batches."""

    evaluated_by: ClassVar = "score"
    writes: ClassVar = True
    predicts_tokens: ClassVar = True
    lookahead: ClassVar[int] = 0
    """How many tokens a row has beyond those that the model reads."""

    def frames(self) -> dict[str, Frame]:
        """One text."""
        return {"text": self.frame}

    def list_usages(self) -> list[Usage]:
        """Scoring, which every model of text can do."""
        first = Usage("how probable a text is", "echo {text} | seqloom score {run}", "model.score({text})")
        return [first, *super().list_usages()]

    def make_samples(self, records: Records, tokenizer: Tokenizer, *, training: bool) -> Samples[Any]:
        """Rows of text: windows, several packed records, or one record each."""
        return build_text_samples(
            records,
            self.batch.rows,
            self.find_frames(tokenizer)["text"],
            pad=tokenizer.roles.pad or 0,
            seed=self.train.seed,
            most=self.max_positions[0],
            lookahead=self.lookahead,
            training=training,
            segment=self.make_segmentation(tokenizer, training=training),
        )

    def metrics(self, labels: Sequence[str]) -> tuple[Metric, ...]:
        """How well text is predicted."""
        return PERPLEXITY, BITS_PER_BYTE

    def answer(self, network: nn.Module, batch: TokenBatch, loss: Loss, context: Context) -> Answers:
        """The log-probability of the batch, its predictions and their bytes."""
        size = 0
        if BITS_PER_BYTE.name in context.asked:
            texts = context.tokenizer.decode_batch([ids.tolist() for ids in self.find_predicted(batch)])
            size = sum(len(text.encode()) for text in texts) + self.count_ends(batch, context.tokenizer)
        return Answers([(loss.count, size)], [-float(loss.total)])

    def find_predicted(self, batch: TokenBatch) -> list[Tensor]:
        """The tokens of each row that the loss predicts."""
        return [ids[real] for ids, real in zip(batch.ids[:, 1:], find_followed(batch), strict=True)]

    def count_ends(self, batch: TokenBatch, tokenizer: Tokenizer) -> int:
        """How many of them are the end of a text, which stands for the end of its line: a byte."""
        end = self.find_frames(tokenizer)["text"].after[:1]
        return sum(int((ids == end[0]).sum()) for ids in self.find_predicted(batch)) if end else 0


class LanguageModelTask(TextTask):
    """Continue text."""

    task: Literal["language-model"] = "language-model"
    end_tokens: Names = Field((), examples=[["<|im_end|>"]])
    """More tokens that end an answer, by their names in the tokeniser; imported models may have some."""
    model: LanguageModelConfig = LanguageModelConfig()
    """What is trained."""

    verbs: ClassVar = ("generate", "score", "embed", "classify by examples (shots)")
    lookahead: ClassVar[int] = 1

    def list_usages(self) -> list[Usage]:
        """Continuing a text."""
        first = Usage("continue a text", "echo {text} | seqloom generate {run}", "model.generate({text}).text")
        return [first, *super().list_usages()]

    def describe_idle_keys(self) -> list[str]:
        """Those of what a decoder does with a source, which is not there."""
        decoder, fields = self.model.decoder, type(self.model.decoder).model_fields
        changed = (key for key in decoder.source_keys if getattr(decoder, key) != fields[key].default)
        return [f"model.decoder.{key} changes nothing: a language model has no source" for key in changed]

    def find_more_ends(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Those that the user names."""
        return find_ids("end_tokens", self.end_tokens, tokenizer)

    def compute_loss(self, network: nn.Module, batch: TokenBatch, *, smoothing: float = 0.0) -> Loss:
        """The cross-entropy of each token, given those before it in its document."""
        assert isinstance(network, LanguageModel)
        wanted, states = find_targets(batch, find_followed(batch.known), 1), network(batch.derive(drop_last))
        return predict_tokens(network.output, pick(states, wanted.places), wanted, smoothing)

    def show(self, network: nn.Module, batch: TokenBatch, context: Context) -> list[Sample]:
        """The beginnings of texts, continued greedily."""
        assert isinstance(network, LanguageModel)
        tokenizer, samples = context.tokenizer, []
        ends = self.find_frames(tokenizer)["text"].after[:1]
        beyond = range(tokenizer.vocab_size, len(network.output.weight))  # rows that are no token
        never = (*beyond, *(() if context.seen is None else context.seen.unseen))
        for row, ids in enumerate(list_rows(batch)):
            if batch.documents is not None:  # the first of those that share the row
                first = batch.documents[row, : len(ids)] == batch.documents[row, 0]
                ids = ids[: int(first.sum())]
            read = min(_SHOWN_TOKENS, len(ids) // 2)
            if not read:
                continue
            longest = read - 1 + _SHOWN_TOKENS
            longest = min(longest, self.model.decoder.max_positions or longest)
            request = Request(ids[0], longest, tuple(ids[1:read]))
            [[best, *_]] = search(
                network.step, network.start(1, longest), [request], SearchOptions(), ends=ends, never=never
            )
            texts = (ids[:read], list(best.ids[read - 1 :]), ids[read : read + _SHOWN_TOKENS])
            samples.append(Sample(*tokenizer.decode_batch(texts)))
        return samples


_SHOWN_TOKENS = 24
"""How many tokens of a text are shown, and how many are written after them."""


class Targets(NamedTuple):
    """The tokens of a batch that are predicted."""

    places: Tensor
    """Of the states that predict them, in the padded batch."""
    ids: Tensor
    host: Tensor | None
    """The same ids in main memory, where the others are elsewhere."""


def find_targets(batch: TokenBatch, chosen: Tensor, ahead: int = 0) -> Targets:
    """The tokens that are predicted `ahead` places before them, where that is `chosen`: best asked in main memory."""
    places = find_places(chosen, batch.ids.device)
    host = None if batch.host is None else batch.host.ids[:, ahead:][chosen]
    return Targets(places, pick(batch.ids[:, ahead:], places), host)


def predict_tokens(output: nn.Module | None, states: Tensor, targets: Targets, smoothing: float) -> Loss:
    """The cross-entropy of tokens, from the states that predict them."""
    if output is None:
        raise ConfigError("model.head = false: this model only embeds, there is nothing to train it by")
    loss = linear_cross_entropy(output, states, targets.ids, host=targets.host, smoothing=smoothing)  # type: ignore[arg-type]
    return Loss(loss, len(targets.ids))


def drop_last(batch: TokenBatch) -> TokenBatch:
    """All tokens but the last of each row: what is read to predict all but the first."""
    documents = None if batch.documents is None else batch.documents[:, :-1]
    return TokenBatch(batch.ids[:, :-1], batch.mask[:, :-1], documents)


def find_followed(batch: TokenBatch) -> Tensor:
    """Where a token and the next one are real and of the same document."""
    both = batch.mask[:, :-1] & batch.mask[:, 1:]
    return both if batch.documents is None else both & (batch.documents[:, :-1] == batch.documents[:, 1:])
