"""What a task is: the keys that a user may write, and the answer to every question the rest of the package asks.

A task is a section of the configuration with methods. Training asks it for columns, batches, a network and a loss,
validation and `eval` for answers and metrics, a model in use for its frames and verbs. To add a task is to add a file
like the others in this room, and a line in `tasks/__init__.py`.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.config.base import Section
from seqloom.config.batches import Frame as FrameSection
from seqloom.config.batches import LineRows, RecordBatches
from seqloom.config.data import Data
from seqloom.config.faults import suggest
from seqloom.config.sizes import Size
from seqloom.config.tokenizer import Bpe, TokenizerConfig
from seqloom.config.train import TrainConfig
from seqloom.data.batching import Batches, Samples
from seqloom.data.columns import Column, TextColumn
from seqloom.data.examples import Example
from seqloom.data.rows import Frame, Limit, Segment
from seqloom.data.shards import Records
from seqloom.errors import ConfigError
from seqloom.metrics.classification import LabelScore
from seqloom.metrics.measure import Metric
from seqloom.seeds import derive_seed
from seqloom.text import BpeDropout, Tokenizer
from seqloom.types import Seen, TokenBatch

TASKS: dict[str, "type[Config]"] = {}
"""The class of each task by its name."""


@dataclass(frozen=True)
class Loss:
    """A sum over predictions and how many there were.

    Sums and counts, never means: the loop divides once, by the count over all parts of a batch and all processes. A
    mean of means would weigh a short part as much as a long one.
    """

    total: Float[Tensor, ""]
    count: int


@dataclass(frozen=True)
class Answers:
    """The model's answers and the right ones: what metrics compare."""

    wanted: list[Any] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """A record and the model's answer, for a person to read."""

    text: str
    answer: str
    wanted: str = ""
    """The right answer; empty where there is none."""

    def __str__(self) -> str:
        return f"{self.text} → {self.answer}"


@dataclass(frozen=True)
class Context:
    """What a task needs to know to answer."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    asked: frozenset[str]
    """The metrics that will be computed of the answers."""
    seen: Seen | None = None
    """What the training data held; None where the model was not trained here."""


@dataclass(frozen=True)
class Usage:
    """A way to use a finished run. `{run}` stands for its folder and `{text}` for a text."""

    what: str
    command: str
    python: str
    """With the run loaded as `model`."""


@dataclass(frozen=True)
class Details:
    """What an evaluation shows besides the metrics."""

    labels: tuple[LabelScore, ...] = ()
    """Each label, or each kind of span, by itself."""
    confusions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each label that was wanted, how often each was given."""
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know."""


class Config(Section):
    """A whole configuration: what `seqloom train CONFIG` reads. The key `task` chooses the class."""

    task: str
    data: Data
    """Where the records are."""

    example_files: ClassVar[dict[str, Any]] = {"files": "train.txt"}
    """The training files in a new configuration, to be replaced by the user's own."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """A class that names a task of its own is known from then on."""
        super().__pydantic_init_subclass__(**kwargs)
        if "task" in inspect.get_annotations(cls):
            TASKS[cls.model_fields["task"].default] = cls


class Task(Config):
    """The keys of every task that trains a network, and the questions it answers."""

    size: Size = "auto"
    """tiny, small, base or large: the model's width, depth, dropout and rate where no key gives them; auto chooses by
    the words there are to learn from."""
    tokenizer: TokenizerConfig = Bpe()
    """How text becomes tokens: bpe, characters, bytes, words, wordpiece, unigram, or a file."""
    batch: Any
    """How records become batches."""
    init: str | None = Field(None, examples=["runs/pretrained"])
    """A run to start from: its tokeniser and encoder are taken over, with their weights."""
    model: Any
    """What is trained."""
    train: TrainConfig = TrainConfig()
    """How to train it."""

    verbs: ClassVar[tuple[str, ...]] = ("embed",)
    """What a finished model can do, in words that go into a sentence."""
    evaluated_by: ClassVar[str | None] = None
    """The verb whose answers `eval` measures; None: it measures `answer`, as validation does."""
    writes: ClassVar[bool] = False
    """Whether a model in use writes text, token by token."""
    predicts_tokens: ClassVar[bool] = False
    """Whether the loss is that of tokens, so that its exponential is a perplexity."""
    needs_whole_batch: ClassVar[bool] = False
    """Whether the loss compares the records of a batch with each other, so that the batch must not be divided."""
    max_answers: ClassVar[int | None] = None
    """The most records that are answered in a validation while training, where an answer takes long."""

    @model_validator(mode="after")
    def _judged_by_a_metric(self) -> Self:
        Judge(self, ())
        return self

    def list_usages(self) -> list[Usage]:
        """How to use a finished run, the most usual way first."""
        found = [Usage("a vector for a text", "echo {text} | seqloom embed {run}", "model.embed({text})")]
        if self.data.valid or self.data.valid_fraction:
            found.append(
                Usage("its metrics on the validation data", "seqloom eval {run}", 'model.evaluate(split="valid")')
            )
        return [*found, Usage("look inside", "seqloom explore {run}", "model.trace({text})")]

    def describe_idle_keys(self) -> list[str]:
        """A sentence for each key that differs from its default and yet changes nothing."""
        return []

    # Data

    def frames(self) -> dict[str, FrameSection]:
        """The texts of a record by role, and the special tokens around each."""
        raise NotImplementedError

    def find_frames(self, tokenizer: Tokenizer) -> dict[str, Frame]:
        """The same as ids; a special token that the tokeniser does not have is left out."""
        return {role: find_tokens(frame, tokenizer.of(role)) for role, frame in self.frames().items()}

    def find_more_ends(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Tokens that end an answer besides the one that follows a text in training."""
        return ()

    def read_texts(self, example: Example, columns: Sequence[str] = ()) -> Iterator[str]:
        """The texts of a record, or of some of its columns: what a tokeniser is learned from."""
        for role in columns or self.frames():
            value = example.values[role]
            yield value if isinstance(value, str) else " ".join(value)

    def find_labels(self, examples: Iterable[Example]) -> tuple[str, ...]:
        """The labels in the order of their numbers; () where there are none, ("",) where a label is a quantity."""
        return ()

    def find_seen(
        self, examples: Iterable[Example], labels: Sequence[str], records: Records, tokenizer: Tokenizer
    ) -> Seen:
        """What a model in use has to know of the training data: for one that writes, which tokens it did not see.

        BPE dropout may show any token, so then nothing is known.
        """
        settings = (getattr(self.tokenizer, role, self.tokenizer) for role in self.frames())
        if not self.writes or any(getattr(own, "dropout", 0.0) for own in settings):
            return Seen()
        written = tokenizer.target
        seen = np.zeros(written.vocab_size, bool)
        for role, (before, after) in self.find_frames(tokenizer).items():
            if tokenizer.of(role) is written:
                seen[[*before, *after]] = True
                for ids in records.scan(role):
                    seen[ids] = True
        return Seen(tuple(np.flatnonzero(~seen).tolist()))

    def make_columns(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> dict[str, Column]:
        """How each value of a record becomes numbers."""
        return {role: TextColumn(tokenizer.of(role)) for role in self.frames()}

    def make_samples(self, records: Records, tokenizer: Tokenizer, *, training: bool) -> Samples[Any]:
        """What batches are made of."""
        raise NotImplementedError

    def make_batches(
        self, records: Records, tokenizer: Tokenizer, weights: Sequence[float] | None = None
    ) -> Batches[Any]:
        """Batches to train on, with the weight of each corpus; or to judge by, without."""
        samples = self.make_samples(records, tokenizer, training=weights is not None)
        pool = {"pool": self.batch.pool} if isinstance(self.batch, RecordBatches) else {}
        return Batches(samples, tokens=self.batch.tokens, seed=self.train.seed, weights=weights, **pool)

    @property
    def limit(self) -> Limit:
        """The most tokens in a row, and what is done with more."""
        return Limit(self.batch.max_length, self.batch.over, self.max_positions)

    @property
    def max_positions(self) -> tuple[int | None, ...]:
        """The most tokens that the model has positions for, in each row of a sample; None is any number."""
        encoder, decoder = (getattr(self.model, name, None) for name in ("encoder", "decoder"))
        read = [] if encoder is None else [encoder.max_positions]
        if features := getattr(self.model, "features", None):
            tables = [most for most in (*read, features.model.encoder.max_positions) if most is not None]
            read = [min(tables, default=None)]
        if decoder is not None:  # it predicts the last token and does not read it
            read.append(None if decoder.max_positions is None else decoder.max_positions + 1)
        return tuple(read)

    @property
    def max_length(self) -> int:
        """The most tokens that a row has in training."""
        if isinstance(self.batch, RecordBatches):
            return self.batch.max_length
        rows = self.batch.rows
        return rows.max_length if isinstance(rows, LineRows) else rows.length

    def make_segmentation(self, tokenizer: Tokenizer, *, training: bool) -> dict[str, Segment]:
        """BPE dropout for each text, if asked for: other cuts of the same words, a function of seed and sample."""
        settings = {role: getattr(self.tokenizer, role, self.tokenizer) for role in self.frames()}
        wanted = {
            role: (tokenizer.of(role), rate) for role, own in settings.items() if (rate := getattr(own, "dropout", 0.0))
        }
        if not wanted or not training:
            return {}
        self.check_segmentation()
        made = {key: self._drop_merges(*key) for key in set(wanted.values())}
        return {role: made[key] for role, key in wanted.items()}

    def _drop_merges(self, tokenizer: Tokenizer, rate: float) -> Segment:
        dropout, seed = BpeDropout(tokenizer, rate), self.train.seed

        def segment(ids: list[int], number: int) -> list[int]:
            return dropout.encode(tokenizer.decode(ids), derive_seed(seed, number))

        return segment

    def check_segmentation(self) -> None:
        """Refuse BPE dropout where a row is not one whole text."""
        if not isinstance(self.batch, RecordBatches) and not isinstance(self.batch.rows, LineRows):
            raise ConfigError(
                "tokenizer.dropout: only a row that is one whole text can be cut anew; "
                'set it to 0, or batch.rows = {kind = "lines"}'
            )

    # Training

    def build(self, tokenizer: Tokenizer, labels: Sequence[str] = ()) -> nn.Module:
        """The network, with random weights."""
        network: nn.Module = self.model.build(tokenizer.vocab_size, len(labels) or None)
        return network

    def compute_loss(self, network: nn.Module, batch: Any, *, smoothing: float = 0.0) -> Loss:
        """The objective on a batch, in natural logarithms (squares for quantities)."""
        raise NotImplementedError

    # Judging

    def metrics(self, labels: Sequence[str]) -> tuple[Metric, ...]:
        """What answers are measured by, in `eval` and in validation alike."""
        return ()

    def default_metric(self, labels: Sequence[str]) -> str:
        """What says which checkpoint is best, unless `train.judge_by` does."""
        return "loss"

    def answer(self, network: nn.Module, batch: Any, loss: Loss, context: Context) -> Answers:
        """The network's answers to a validation batch whose loss is known, for the metrics that are asked for."""
        return Answers()

    def show(self, network: nn.Module, batch: Any, context: Context) -> list[Sample]:
        """The network's answers to a few validation records, for a person to read; none where it has no answers."""
        return []

    def break_down(self, wanted: Sequence[Any], given: Sequence[Any], labels: Sequence[str]) -> Details:
        """What an evaluation shows besides the metrics."""
        return Details()


def list_rows(batch: TokenBatch) -> list[list[int]]:
    """The ids of each row, without padding."""
    return [ids[mask].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]


def find_tokens(frame: FrameSection, tokenizer: Tokenizer) -> Frame:
    """The special tokens around a text as ids; one that the tokeniser does not have is left out."""

    def find(roles: Sequence[str]) -> tuple[int, ...]:
        return tuple(id for role in roles if (id := getattr(tokenizer.roles, role)) is not None)

    return Frame(find(frame.before), find(frame.after))


def find_ids(key: str, names: Sequence[str], tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of tokens that a user names by their text in the vocabulary."""
    for name in names:
        if tokenizer.id(name) is None:
            raise ConfigError(f"{key}: the tokeniser has no token {name!r}")
    return tuple(id for name in names if (id := tokenizer.id(name)) is not None)


class Judge:
    """Chooses what a model is measured by, and says which of two validations is better."""

    def __init__(self, task: Task, labels: Sequence[str]) -> None:
        metrics = task.metrics(labels)
        lower = {"loss": True, **({"perplexity": True} if task.predicts_tokens else {})}
        lower |= {metric.name: metric.lower_is_better for metric in metrics}
        self.name = task.train.judge_by or task.default_metric(labels)
        if self.name not in lower:
            near = suggest(self.name, list(lower))
            raise ConfigError(
                f'train.judge_by: "{self.name}" is not a metric of this task{near}; it has {", ".join(lower)}'
            )
        self.metrics = tuple(metric for metric in metrics if not metric.on_request or metric.name == self.name)
        self.lower_is_better = lower[self.name]
        self._sign = -1.0 if self.lower_is_better else 1.0

    def score(self, measures: Mapping[str, float]) -> list[float]:
        """What early stopping and the best checkpoint go by: a measure, then the loss; higher is better."""
        return [self._sign * measures[self.name], -measures["loss"]]

    def describe(self, score: Sequence[float]) -> str:
        """The measure behind a score, for a person to read."""
        return f"{self.name} {self._sign * score[0]:.3f}"
