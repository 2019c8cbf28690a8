"""Where two files that should correspond line by line stop doing so.

Translations of each other have similar lengths (Gale and Church, "A program for aligning sentences in bilingual
corpora", Computational Linguistics 19(1), 1993). The cost of pairing source line i with target line i + d is

    cost(i, d) = min(|log(t[i+d] / s[i]) − usual| / SCALE, CAP)

and the offset d as a function of i is the path of least total cost that pays `SWITCH` for every change of d (Viterbi).
Where the path changes, lines were inserted or lost. Costs are added up over blocks of lines first; the exact line of a
change is then found within the blocks around it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.data.doctor.ledger import SMOOTHING, Column

SCALE = 0.15
CAP = 8.0
SWITCH = 30.0
BLOCK = 16
REACH = 8
"""Offsets looked at on either side of none, and of the difference of the line counts."""
DOUBT = 3.0
"""Lines whose cost is within this of the best are as good an answer."""


@dataclass(frozen=True, slots=True)
class Change:
    """From `line` of the source on, target line = source line + `offset`; the true place is within `low` … `high`."""

    line: int
    low: int
    high: int
    before: int
    offset: int


def find_changes(source: Column, target: Column) -> list[Change]:
    """The changes of offset, given the length of each line in characters. None: the lines correspond all along."""
    shorter = min(len(source), len(target))
    if shorter < 2 * BLOCK:
        return []
    left, right = np.log(source + SMOOTHING), np.log(target + SMOOTHING)
    usual = float(np.median(right) - np.median(left))
    offsets = _candidates(len(target) - len(source))
    costs = _Costs(left, right, usual)
    path = _cheapest_path(np.stack([costs.by_block(d) for d in offsets]), offsets.index(0))
    switches = np.flatnonzero(path[1:] != path[:-1]) + 1
    bounds = [0, *(int(s) for s in switches), len(path)]
    return [
        _locate(costs, offsets[path[b - 1]], offsets[path[b]], before * BLOCK, b * BLOCK, after * BLOCK)
        for before, b, after in zip(bounds, bounds[1:], bounds[2:], strict=False)
    ]


def fits_to_the_end(source: Column, target: Column, lines: int = 256) -> bool:
    """Whether the last lines that both files have clearly belong together as they stand."""
    shorter = min(len(source), len(target))
    left, right = np.log(source + SMOOTHING), np.log(target + SMOOTHING)
    costs = _Costs(left, right, float(np.median(right) - np.median(left))) if shorter else None
    if costs is None:
        return False
    span = (max(0, shorter - lines), shorter)
    here = costs.at(0, *span).sum()
    return all(here + SWITCH < costs.at(d, *span).sum() for d in range(-REACH, REACH + 1) if d)


def _candidates(difference: int) -> list[int]:
    near = range(-REACH, REACH + 1)
    return sorted({*near, *(difference + d for d in near)})


class _Costs:
    def __init__(self, left: NDArray[np.float64], right: NDArray[np.float64], usual: float) -> None:
        self.left, self.right, self.usual = left, right, usual

    def at(self, offset: int, first: int, last: int) -> NDArray[np.float64]:
        """The cost of pairing source lines first … last − 1 with the target lines `offset` further on."""
        costs = np.full(last - first, CAP)
        low, high = max(first, -offset), min(last, len(self.right) - offset)
        if low < high:
            gaps = self.right[low + offset : high + offset] - self.left[low:high] - self.usual
            costs[low - first : high - first] = np.minimum(np.abs(gaps) / SCALE, CAP)
        return costs

    def by_block(self, offset: int) -> NDArray[np.float64]:
        """The cost of each block of source lines."""
        total = len(self.left) // BLOCK * BLOCK
        step = BLOCK << 12  # in pieces, so that a corpus of any size needs little memory
        pieces = [self.at(offset, i, min(i + step, total)).reshape(-1, BLOCK).sum(1) for i in range(0, total, step)]
        return np.concatenate(pieces)


def _cheapest_path(costs: NDArray[np.float64], start: int) -> NDArray[np.intp]:
    """The index of the offset for each block; the path begins at `start` or pays for the change."""
    states, blocks = costs.shape
    came_from = np.empty((blocks, states), np.int16)
    stay = np.arange(states, dtype=np.int16)
    total = np.full(states, SWITCH)
    total[start] = 0.0
    total += costs[:, 0]
    for block in range(1, blocks):
        best = int(np.argmin(total))
        switch = total[best] + SWITCH < total
        came_from[block] = np.where(switch, best, stay)
        total = np.where(switch, total[best] + SWITCH, total) + costs[:, block]
    path = np.empty(blocks, np.intp)
    path[-1] = np.argmin(total)
    for block in range(blocks - 1, 0, -1):
        path[block - 1] = came_from[block, path[block]]
    return path


def _locate(costs: _Costs, before: int, after: int, first: int, near: int, last: int) -> Change:
    """The line between `first` and `last` where changing from one offset to the other is cheapest."""
    first, last = max(first, near - 4 * BLOCK), min(last, near + 4 * BLOCK)
    old, new = costs.at(before, first, last), costs.at(after, first, last)
    totals = np.concatenate([[0.0], np.cumsum(old)]) + np.concatenate([np.cumsum(new[::-1])[::-1], [0.0]])
    good = np.flatnonzero(totals <= totals.min() + DOUBT)
    line = first + int(np.argmin(totals)) + 1
    return Change(line, first + int(good[0]) + 1, first + int(good[-1]) + 1, before, after)
