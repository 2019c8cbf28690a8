"""Samples -> batches of tensors, made ahead of time in a thread.

A kind of samples knows how long each of its samples is and how to build a batch of some of them; `Batches` adds the
order. The batch at a step is a pure function of (seed, step, rank, world size).
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar, assert_never

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from seqloom.config.batches import LineRows, PackedRows, Rows, WindowRows
from seqloom.data.masking import MaskedBatch, Masker
from seqloom.data.order import Draw, Mixture, Order
from seqloom.data.packing import PackedSamples, WindowSamples
from seqloom.data.rows import AS_ENCODED, Frame, Limit, RecordRows, Segment, Template
from seqloom.data.shards import Records
from seqloom.types import Alignment, PairBatch, TokenBatch

Integers = NDArray[np.int64]
B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)


@dataclass(frozen=True)
class LabelledBatch:
    """Texts and the number of each one's label, or the quantity to predict."""

    text: TokenBatch
    labels: Shaped[Tensor, "B"]


@dataclass(frozen=True)
class TaggedBatch:
    """Texts and tags; a tag stands at the first token of its word, where `tagged` is true."""

    text: TokenBatch
    tags: Int[Tensor, "B T"]
    tagged: Bool[Tensor, "B T"]


class Samples(Protocol[B_co]):
    """What can be drawn, and how a batch is made of what was drawn."""

    @property
    def lengths(self) -> NDArray[np.integer[Any]]:
        """The tokens of each sample: a row a sample, a column for each sequence that is padded."""

    @property
    def sizes(self) -> Sequence[int]:
        """How many samples come from each corpus."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What was left out, cut or split, by reason."""

    def build(self, draw: Draw) -> B_co:
        """The batch of some samples."""


class Batches(Generic[B_co]):
    """The batches of a run. `weights` says how often an epoch sees each corpus."""

    def __init__(
        self,
        samples: Samples[B_co],
        *,
        tokens: int,
        seed: int,
        weights: Sequence[float] | None = None,
        pool: int = 256,
    ) -> None:
        self.samples = samples
        mixture = Mixture.weigh(samples.sizes, weights or [1.0] * len(samples.sizes))
        self.order = Order(samples.lengths, mixture, tokens=tokens, seed=seed, pool=pool)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self.order.batches_per_epoch

    def build(self, step: int, rank: int = 0, world_size: int = 1) -> B_co:
        """The batch of one rank at a step. To accumulate over m parts, ask for m·world_size ranks."""
        return self.samples.build(self.order.draw(step, rank, world_size))


class _RowSamples(RecordRows):
    """Each record is one row."""

    def __init__(
        self, records: Records, template: Template, limit: Limit, pad: int, segment: Mapping[str, Segment] = AS_ENCODED
    ) -> None:
        super().__init__(records, [template], limit, pad, segment)


class TextSamples(_RowSamples):
    """Texts, one a row."""

    def build(self, draw: Draw) -> TokenBatch:
        """Padded rows."""
        return self.build_rows(draw)


class PairSamples(RecordRows):
    """Sources and targets."""

    def __init__(
        self,
        records: Records,
        source: Template,
        target: Template,
        limit: Limit,
        pad: int,
        segment: Mapping[str, Segment] = AS_ENCODED,
        alignment_weight: float = 0.0,
    ) -> None:
        """`alignment_weight` is given where the records have a column `alignment`."""
        super().__init__(records, [source, target], limit, pad, segment)
        self._frames, self._weight = [next(iter(side.values())) for side in (source, target)], alignment_weight
        self._aligned = records.measure("alignment") if alignment_weight else None

    def build(self, draw: Draw) -> PairBatch:
        """Padded sources beside padded targets."""
        alignment = None if self._aligned is None else self._align(draw, self._aligned)
        return PairBatch(self.build_rows(draw, 0), self.build_rows(draw, 1), alignment)

    def _align(self, draw: Draw, sizes: NDArray[np.int32]) -> Alignment:
        """A target token is predicted from the position before it; tokens that were cut off take no part."""
        counts = sizes[self.find_records(draw)].astype(np.int64)
        tokens = self.gather("alignment", draw, counts).reshape(-1, 2)
        rows = np.repeat(np.arange(len(counts)), counts // 2)
        places = tokens + [len(frame.before) for frame in self._frames]
        ends = self.lengths[draw.samples] - [len(frame.after) for frame in self._frames]
        kept = (places < ends[rows]).all(axis=1)
        entries = np.stack([rows, places[:, 1] - 1, places[:, 0]], axis=1)[kept]
        _, own, shared = np.unique(entries[:, :2], axis=0, return_inverse=True, return_counts=True)
        weights = self._weight / shared[own].astype(np.float32)
        return Alignment(torch.from_numpy(entries), torch.from_numpy(weights))


class LabelledSamples(_RowSamples):
    """Texts, or two texts in one row, each with a label."""

    def build(self, draw: Draw) -> LabelledBatch:
        """Padded rows; labels are integers, or floats where they are quantities."""
        labels = self.gather("label", draw, np.ones(len(draw.samples), np.int64))
        return LabelledBatch(self.build_rows(draw), torch.from_numpy(labels))


class TaggedSamples(RecordRows):
    """Sentences with a tag for each word."""

    def __init__(self, records: Records, frame: Frame, limit: Limit, pad: int) -> None:
        super().__init__(records, [{"words": frame}], limit, pad)
        self._before, self._ends = len(frame.before), self.lengths[:, 0] - len(frame.after)
        self._words = records.measure("first")

    def build(self, draw: Draw) -> TaggedBatch:
        """Padded rows; words that were cut off have no tag."""
        text = self.build_rows(draw)
        words = self._words[self.find_records(draw)].astype(np.int64)
        rows = np.repeat(np.arange(len(words)), words)
        places = self.gather("first", draw, words) + self._before
        kept = places < self._ends[draw.samples][rows]
        tags, tagged = torch.zeros_like(text.ids), torch.zeros_like(text.mask)
        tags[rows[kept], places[kept]] = torch.from_numpy(self.gather("tags", draw, words)[kept])
        tagged[rows[kept], places[kept]] = True
        return TaggedBatch(text, tags, tagged)


class MaskedSamples:
    """Rows of any kind, with some of their tokens hidden."""

    def __init__(self, rows: Samples[TokenBatch], masker: Masker) -> None:
        self._rows, self._masker = rows, masker
        self.lengths, self.sizes, self.counts = rows.lengths, rows.sizes, rows.counts

    def build(self, draw: Draw) -> MaskedBatch:
        """Rows, and what was hidden in them."""
        return self._masker.hide(self._rows.build(draw), draw.keys)


class Loader(Generic[B]):
    """The batches of steps `start`, `start` + 1, …, `stop` − 1 (without `stop`, no end), `ahead` of them made early.

    A batch is a function of its step, so there is nothing to skip and nothing to save: to resume is to start here. What
    goes wrong in the thread is raised where the batch is asked for. Leaving the `with` block ends the thread.
    """

    def __init__(self, make: Callable[[int], B], start: int, stop: int | None = None, ahead: int = 4) -> None:
        self._make, self._next, self._stop = make, start, stop
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="seqloom-loader")
        self._ready: deque[Future[B]] = deque()
        self.waited = 0.0
        """Seconds that the caller has spent waiting for batches."""
        for _ in range(ahead):
            self._order_next()

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
        self._order_next()
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop making batches; returns when the thread has ended."""
        self._ready.clear()
        self._thread.shutdown(cancel_futures=True)

    def _order_next(self) -> None:
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
    lookahead: int = 0,
    training: bool = True,
    column: str = "text",
    segment: Mapping[str, Segment] = AS_ENCODED,
) -> Samples[TokenBatch]:
    """Rows of plain text as the configuration wants them; only a row that is one text can be segmented anew."""
    match rows:
        case LineRows(max_length=length, over=over):
            return TextSamples(records, {column: frame}, Limit(length, over), pad, segment)
        case PackedRows(length=length):
            return PackedSamples(records, column, frame, length, pad, lookahead)
        case WindowRows(length=length):
            return WindowSamples(records, column, frame, length, pad, seed, lookahead, training)
        case _:
            assert_never(rows)
