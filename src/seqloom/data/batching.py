"""Samples -> batches of tensors, made ahead of time in a thread.

Each class of samples knows the length of every sample and builds a batch from some of them; `Batches` decides which.
The batch at a step is a pure function of (seed, step, rank, world size).
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar, assert_never

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from seqloom.config.batches import LineRows, PackedRows, Rows, WindowRows
from seqloom.data.masking import MaskedBatch, Masker
from seqloom.data.order import LARGEST_BATCH, Draw, Mixture, Order
from seqloom.data.packing import PackedSamples, WindowSamples
from seqloom.data.rows import AS_ENCODED, Frame, Limit, RecordRows, Segment, Template
from seqloom.data.shards import Records
from seqloom.errors import ConfigError
from seqloom.types import Alignment, PairBatch, TokenBatch

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)


@dataclass(frozen=True)
class LabelledBatch:
    """Texts with the class number or the quantity to predict for each."""

    text: TokenBatch
    labels: Shaped[Tensor, "B"]


@dataclass(frozen=True)
class TaggedBatch:
    """Texts and tags; a tag stands at the first token of its word, where `tagged` is true."""

    text: TokenBatch
    tags: Int[Tensor, "B T"]
    tagged: Bool[Tensor, "B T"]
    host: "TaggedBatch | None" = field(default=None, repr=False, compare=False)
    """The same in main memory, where this is on another device and came from there."""

    @property
    def known(self) -> "TaggedBatch":
        """The same in main memory, if it is there."""
        return self if self.host is None else self.host


class Samples(Protocol[B_co]):
    """Samples that can be drawn and made into batches."""

    @property
    def lengths(self) -> NDArray[np.integer[Any]]:
        """The number of tokens: one row per sample, one column per padded sequence."""

    @property
    def sizes(self) -> Sequence[int]:
        """The number of samples from each corpus."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many records (or tokens) were left out, cut or split, by what was done."""

    @property
    def treated(self) -> Mapping[str, NDArray[np.int64]]:
        """The records that were left out, cut or split, by what was done."""

    def build(self, draw: Draw) -> B_co:
        """Build the batch of the samples drawn."""


class Batches(Generic[B_co]):
    """The batches of a run, to train on or, without `weights`, to judge by.

    `weights` says how often an epoch sees the records of each corpus. Unless `tokens` is given, batches to train on
    suit the data, and batches to judge by are large: that is faster, and changes nothing.
    """

    def __init__(
        self,
        samples: Samples[B_co],
        *,
        tokens: int | None,
        seed: int,
        weights: Sequence[float] | None = None,
        pool: int = 256,
    ) -> None:
        self.samples = samples
        if tokens is None and weights is None:
            tokens = max(LARGEST_BATCH, int(samples.lengths.sum(axis=1).max(initial=0)))
        mixture = Mixture.weigh(samples.sizes, weights or [1.0] * len(samples.sizes))
        self.order = Order(samples.lengths, mixture, tokens=tokens, seed=seed, pool=pool)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return self.order.batches_per_epoch

    def build(self, step: int, rank: int = 0, world_size: int = 1) -> B_co:
        """Build the batch of one rank at a step. To accumulate over m parts, ask for m·world_size ranks."""
        return self.samples.build(self.order.draw(step, rank, world_size))

    def spread(self, count: int) -> Iterator[B_co]:
        """Batches of `count` samples that are spread evenly over all of them; of all samples, if there are no more."""
        yield from map(self.samples.build, self.order.spread(count))


class TextSamples(RecordRows):
    """Texts, one in each row."""

    def build(self, draw: Draw) -> TokenBatch:
        """Build padded rows."""
        return self.build_rows(draw)


class PairSamples(RecordRows):
    """Sources and targets."""

    def __init__(
        self,
        records: Records,
        templates: Sequence[Template],
        limit: Limit,
        pad: int,
        segment: Mapping[str, Segment] = AS_ENCODED,
        alignment_weight: float = 0.0,
        target_pad: int | None = None,
    ) -> None:
        """A positive `alignment_weight` needs a column `alignment` in the records."""
        super().__init__(records, templates, limit, pad, segment)
        if target_pad is not None:
            self._pads[1] = target_pad
        self._frames = [frame for template in templates for frame in template.values()]
        self._weight = alignment_weight
        self._aligned = records.measure("alignment") if alignment_weight else None

    def build(self, draw: Draw) -> PairBatch:
        """Build padded sources beside padded targets."""
        alignment = None if self._aligned is None else self._align(draw, self._aligned)
        return PairBatch(self.build_rows(draw, 0), self.build_rows(draw, 1), alignment)

    def _align(self, draw: Draw, sizes: NDArray[np.int32]) -> Alignment:
        """A target token is predicted at the position before it; tokens that were cut off have no alignment."""
        counts = sizes[self.find_records(draw)].astype(np.int64)
        tokens = self.gather("alignment", draw, counts).reshape(-1, 2)
        rows = np.repeat(np.arange(len(counts)), counts // 2)
        positions = tokens + [len(frame.before) for frame in self._frames]
        ends = self.lengths[draw.samples] - [len(frame.after) for frame in self._frames]
        kept = (positions < ends[rows]).all(axis=1)
        entries = np.stack([rows, positions[:, 1] - 1, positions[:, 0]], axis=1)[kept]
        _, target, sources = np.unique(entries[:, :2], axis=0, return_inverse=True, return_counts=True)
        weights = self._weight / sources[target].astype(np.float32)
        return Alignment(torch.from_numpy(entries), torch.from_numpy(weights))


class LabelledSamples(RecordRows):
    """Rows of one text or two, each with a label."""

    def build(self, draw: Draw) -> LabelledBatch:
        """Build padded rows and labels: integers for classes, floats for quantities."""
        labels = self.gather("label", draw, np.ones(len(draw.samples), np.int64))
        return LabelledBatch(self.build_rows(draw), torch.from_numpy(labels))


class TaggedSamples(RecordRows):
    """Sentences with a tag for each word."""

    def __init__(self, records: Records, frame: Frame, limit: Limit, pad: int) -> None:
        super().__init__(records, [{"words": frame}], limit, pad)
        self._before, self._ends = len(frame.before), self.lengths[:, 0] - len(frame.after)
        self._words = records.measure("first")

    def build(self, draw: Draw) -> TaggedBatch:
        """Build padded rows; a word whose first token is not in the row has no tag there."""
        text = self.build_rows(draw)
        words = self._words[self.find_records(draw)].astype(np.int64)
        rows = np.repeat(np.arange(len(words)), words)
        positions = self.gather("first", draw, words) - self.skips[draw.samples][rows] + self._before
        kept = (positions >= self._before) & (positions < self._ends[draw.samples][rows])
        tags, tagged = torch.zeros_like(text.ids), torch.zeros_like(text.mask)
        tags[rows[kept], positions[kept]] = torch.from_numpy(self.gather("tags", draw, words)[kept])
        tagged[rows[kept], positions[kept]] = True
        return TaggedBatch(text, tags, tagged)


class MaskedSamples:
    """Rows of any kind, with some of their tokens hidden."""

    def __init__(self, rows: Samples[TokenBatch], masker: Masker) -> None:
        self._rows, self._masker = rows, masker
        self.lengths, self.sizes, self.counts, self.treated = rows.lengths, rows.sizes, rows.counts, rows.treated

    def build(self, draw: Draw) -> MaskedBatch:
        """Build rows and hide some of their tokens."""
        return self._masker.hide(self._rows.build(draw), draw.keys)


class Loader(Generic[B]):
    """The batches of steps `start`, `start` + 1, …, `stop` − 1 (without `stop`, no end), `ahead` of them made early.

    A batch is a function of its step, so resuming means starting at another step. An error in the thread is raised
    when its batch is asked for. Leaving the `with` block ends the thread.
    """

    def __init__(self, make: Callable[[int], B], start: int, stop: int | None = None, ahead: int = 4) -> None:
        self._make, self._next, self._stop = make, start, stop
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="seqloom-loader")
        self._ready: deque[Future[B]] = deque()
        self.waited = 0.0
        """Seconds the caller has spent waiting for batches."""
        for _ in range(ahead):
            self._submit_next()

    def __iter__(self) -> Iterator[B]:
        return self

    def __next__(self) -> B:
        if not self._ready:
            self.close()
            raise StopIteration
        started = time.perf_counter()
        try:
            batch = self._ready.popleft().result()
        except BaseException:
            self.close()
            raise
        self.waited += time.perf_counter() - started
        self._submit_next()
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop making batches and wait for the thread to end."""
        self._ready.clear()
        self._thread.shutdown(cancel_futures=True)

    def _submit_next(self) -> None:
        if self._stop is None or self._next < self._stop:
            self._ready.append(self._thread.submit(self._make, self._next))
            self._next += 1


def build_text_samples(
    records: Records,
    rows: Rows,
    frame: Frame,
    *,
    pad: int,
    seed: int,
    most: int | None = None,
    lookahead: int = 0,
    training: bool = True,
    segment: Mapping[str, Segment] = AS_ENCODED,
) -> Samples[TokenBatch]:
    """Choose the kind of rows the configuration asks for; `segment` applies only where a row is one record.

    `most` is how many tokens of a row the model has positions for.
    """
    match rows:
        case LineRows(max_length=length, over=over):
            return TextSamples(records, [{"text": frame}], Limit(length, over, (most,)), pad, segment)
        case PackedRows(length=length):
            return PackedSamples(records, "text", frame, length, pad, lookahead, most)
        case WindowRows(length=length):
            if most is not None and length + lookahead > most:
                raise ConfigError(
                    f"batch.rows.length = {length}, but the model has only {most - lookahead} positions; "
                    "lower batch.rows.length, or raise positions.table"
                )
            return WindowSamples(records, "text", frame, length, pad, seed, lookahead, training)
        case _:
            assert_never(rows)
