"""Which samples make up the batch at a step: a formula, not a history.

    step → (epoch, batch) → pool → positions → shuffle → samples → batches of like length → this rank's rows

An epoch draws every sample as often as its corpus's weight says. The draws, shuffled, are cut into pools; a pool is
grouped by length into batches of nearly equal tokens; the batches of a pool come in shuffled order. Each arrow is a
pure function (see `noise`), and the only work is on one pool, whose size does not depend on the corpus, the step or
the epoch. So any step costs the same, and a run may change its number of ranks: the global batch stays what it was.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from seqloom.data.noise import Stream, permute
from seqloom.errors import ConfigError, DataError

Integers = NDArray[np.int64]
SMALLEST_BATCH, LARGEST_BATCH = 512, 4096
"""Between how many tokens a batch has that follows the data."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Several corpora in one epoch: how many records each has, and how many of them every epoch sees.

    The weight of a corpus is how often an epoch sees each of its records. With weight w a corpus of n records
    contributes c = round(w·n) records to every epoch (at least one): epoch e takes the records e·c … (e+1)·c − 1, where
    the corpus starts again at its end. So weight 1 is every record once, 2 every record twice, 0.5 one half in even
    epochs and the other half in odd ones, and no two records of a corpus are ever seen a different number of times,
    give or take one. Where a record is found is a pure function of the epoch and the position in it.
    """

    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @staticmethod
    def weigh(sizes: Sequence[int], weights: Sequence[float]) -> "Mixture":
        """The mixture of corpora of these sizes; an empty corpus contributes nothing."""
        counts = (max(1, round(n * w)) if n else 0 for n, w in zip(sizes, weights, strict=True))
        return Mixture(tuple(sizes), tuple(counts))

    @property
    def total(self) -> int:
        """Records in an epoch."""
        return sum(self.counts)

    def locate(self, epoch: int, positions: Integers) -> tuple[Integers, Integers]:
        """The corpus and the record within it for positions 0 … total − 1 of an epoch, before any shuffling."""
        bounds = np.cumsum(self.counts)
        corpus = np.searchsorted(bounds, positions, side="right")
        counts, sizes = np.asarray(self.counts, np.int64), np.asarray(self.sizes, np.int64)
        within = positions - (bounds - counts)[corpus]
        return corpus, (epoch * counts[corpus] + within) % sizes[corpus]


@dataclass(frozen=True)
class Draw:
    """Some samples of one batch. `keys` number the draws of a whole run: the address of a sample's own noise."""

    epoch: int
    samples: Integers
    keys: Integers


def suit_batch(epoch: float) -> int:
    """How many tokens a batch has that suits an epoch of so many: 5·√epoch, within bounds.

    Little text needs small batches, or there are too few updates in it. The batch up to which twice as much in a batch
    halves the updates that are needed grows with the data, hardly with the model (Zhang et al. 2024, "How Does Critical
    Batch Size Scale in Pre-training?"). The root and its factor are measured: docs/training.md, "Little text".
    """
    return min(max(round(5.0 * math.sqrt(epoch)), SMALLEST_BATCH), LARGEST_BATCH)


class Order:
    """The samples of every step of a run, over one corpus or a weighted mixture.

    `lengths` has a row a sample and a column for each padded sequence in it; `tokens` is what a batch holds on average
    over all its columns, and None what suits the data; `pool` is how many batches are grouped together: more of them,
    less padding; fewer, more variety in which samples meet.
    """

    def __init__(
        self, lengths: NDArray[np.integer], mixture: Mixture, *, tokens: int | None, seed: int, pool: int = 256
    ) -> None:
        if not mixture.total:
            raise DataError(
                "no sample is left: every record is empty or too long; raise the limit on length in [batch]"
            )
        totals = lengths.sum(axis=1, dtype=np.int64)
        longest = int(totals.max())
        if tokens is not None and longest > tokens:
            raise ConfigError(
                f"batch.tokens = {tokens} is less than the longest sample, which has {longest} tokens; "
                "raise batch.tokens, or lower batch.max_length (for plain text, batch.rows.length)"
            )
        self._lengths, self._mixture, self._seed, self._given = lengths, mixture, seed, tokens is not None
        self._firsts = np.cumsum([0, *mixture.sizes])
        weighted = zip(np.split(totals, self._firsts[1:-1]), mixture.counts, mixture.sizes, strict=True)
        self.epoch = sum(float(part.sum()) * count / max(1, size) for part, count, size in weighted)
        """Tokens of an epoch."""
        self.tokens = max(suit_batch(self.epoch), longest) if tokens is None else tokens
        """Tokens of a batch, on average."""
        self.batches_per_epoch = math.ceil(self.epoch / self.tokens)
        self._pools = math.ceil(self.batches_per_epoch / pool)
        self._recent = lru_cache(maxsize=2)(self._fill_pool)

    def describe_batches(self) -> str:
        """How large a batch is, and why."""
        why = "as batch.tokens says; an" if self._given else "because an"
        return f"batches of {self.tokens:,} tokens, {why} epoch has {self.epoch:,.0f}"

    def draw(self, step: int, rank: int = 0, world_size: int = 1) -> Draw:
        """What one rank draws of the batch at `step`; all ranks together draw the batch of a single process.

        With more ranks than samples in a batch, the last ranks draw none.
        """
        epoch, batch = divmod(step, self.batches_per_epoch)
        pool = ((batch + 1) * self._pools - 1) // self.batches_per_epoch
        samples, keys = self._recent(epoch, pool)[batch - self._first_batch(pool)]
        return Draw(epoch, samples[rank::world_size], keys[rank::world_size])

    def spread(self, count: int) -> Iterator[Draw]:
        """`count` samples, or all if there are no more, at equal distances, in batches of like length."""
        total = len(self._lengths)
        count = min(count, total)
        chosen = np.arange(count) * total // count
        lengths = self._lengths[chosen]
        for group in group_by_length(lengths, min(count, math.ceil(int(lengths.sum()) / self.tokens))):
            yield Draw(0, chosen[group], chosen[group])

    def _first_batch(self, pool: int) -> int:
        return pool * self.batches_per_epoch // self._pools

    def _fill_pool(self, epoch: int, pool: int) -> list[tuple[Integers, Integers]]:
        """The batches of one pool, each as its samples and their keys."""
        first, last = self._first_batch(pool), self._first_batch(pool + 1)
        total = self._mixture.total
        start, stop = (total * edge // self.batches_per_epoch for edge in (first, last))
        draws = permute(np.arange(start, stop), total, self._seed, Stream.EPOCH, epoch)
        samples = self._find_samples(epoch, draws)
        groups = group_by_length(self._lengths[samples], last - first)
        keys = draws + epoch * total
        shuffled = permute(np.arange(len(groups)), len(groups), self._seed, Stream.BATCHES, epoch * self._pools + pool)
        return [(samples[groups[i]], keys[groups[i]]) for i in shuffled]

    def _find_samples(self, epoch: int, draws: Integers) -> Integers:
        """The sample of each draw of an epoch; a corpus of weight 0.5 gives a random half, then the other half."""
        corpora, samples = self._mixture.locate(epoch, draws)
        for number, size in enumerate(self._mixture.sizes):
            mine = corpora == number
            samples[mine] = permute(samples[mine], size, self._seed, Stream.CORPUS, number) + self._firsts[number]
        return samples


def group_by_length(lengths: NDArray[np.integer], batches: int) -> list[Integers]:
    """Cut samples into `batches` groups of nearly equal tokens and little padding, none of them empty.

    Halve by tokens along the column that leaves less padding, then halve the halves: a k-d tree whose leaves are
    batches. With one column this is sorting by length; with two it keeps both source and target alike.
    """
    totals = lengths.sum(axis=1, dtype=np.int64)

    def halve(rows: Integers, batches: int) -> list[Integers]:
        if batches == 1:
            return [rows]
        left = batches // 2
        choices = []
        for column in lengths.T:
            ordered = rows[np.argsort(column[rows], kind="stable")]
            filled = np.cumsum(totals[ordered])
            middles = 2 * filled - totals[ordered]  # of each sample, doubled: the cut falls where it is nearest
            cut = int(np.searchsorted(middles, 2 * filled[-1] * left // batches))
            cut = min(max(cut, left), len(rows) - (batches - left))
            choices.append((ordered[:cut], ordered[cut:]))
        short, long = min(choices, key=lambda halves: sum(_count_padded(lengths[half]) for half in halves))
        return halve(short, left) + halve(long, batches - left)

    return halve(np.arange(len(lengths)), batches)


def _count_padded(lengths: NDArray[np.integer]) -> int:
    return len(lengths) * int(lengths.max(axis=0).sum())
