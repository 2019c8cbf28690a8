"""Several corpora in one epoch, each as often as its weight says.

The weight of a corpus is how often an epoch sees each of its records. With weight w a corpus of n records contributes
round(w·n) records to every epoch (at least one): epoch e takes the records at e·c … (e+1)·c − 1 of an endless walk
around the corpus, where c is that count. So weight 1 is every record once, 2 every record twice, 0.5 one half in even
epochs and the other half in odd ones, and no two records of a corpus are ever seen a different number of times, give or
take one. Where a record is found is a pure function of the epoch and the position in it; nothing needs to be stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Mixture:
    """How many records each corpus has, and how many of them every epoch sees."""

    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """Records in an epoch."""
        return sum(self.counts)

    def locate(self, epoch: int, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The corpus and the record within it for positions 0 … total − 1 of an epoch, before any shuffling."""
        bounds = np.cumsum(self.counts)
        corpus = np.searchsorted(bounds, positions, side="right")
        counts, sizes = np.asarray(self.counts, np.int64), np.asarray(self.sizes, np.int64)
        within = positions - (bounds - counts)[corpus]
        return corpus, (epoch * counts[corpus] + within) % sizes[corpus]


def mix(sizes: Sequence[int], weights: Sequence[float]) -> Mixture:
    """The mixture of corpora of these sizes; an empty corpus contributes nothing."""
    counts = (max(1, round(n * w)) if n else 0 for n, w in zip(sizes, weights, strict=True))
    return Mixture(tuple(sizes), tuple(counts))
