"""Whether the lines of parallel files correspond, by their lengths, and where the files get out of step.

Translations of each other have similar lengths (Gale and Church, "A program for aligning sentences in bilingual
corpora", Computational Linguistics 19(1), 1993). The cost of pairing source line i with target line i + d is

    cost(i, d) = min(|log(t[i+d] / s[i]) − usual| / SCALE, CAP)

and the offset d as a function of i is the path of least total cost that pays `SWITCH` for every change of d (Viterbi).
A source line may also have no partner, for less than pairing unrelated lines costs. Where the offset changes, lines
were inserted or lost. Costs are added up over blocks of lines first; the exact line of a change is then found
within the blocks around it.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from seqloom.data.doctor.characters import Integers
from seqloom.data.examples import Fault
from seqloom.data.files import read_blocks

SCALE = 0.15
CAP = 8.0
SWITCH = 30.0
DETOUR = 0.75 * SWITCH
"""The price of changing to, or from, having no partner."""
UNMATCHED = 0.6
"""The cost of a source line without a partner, as a share of the cost of a wrong one."""
BLOCK = 16
REACH = 8
"""Offsets tried on either side of 0 and of the difference of the line counts."""
DOUBT = 3.0
"""Lines whose cost is this close to the best are equally good answers."""
MARGIN = 2
"""Lines dropped on either side of the range of a change, because that range is an estimate."""
SMOOTHING = np.float32(5.0)
"""Characters added to both lengths of a pair before they are divided: `Hi.` and `Hallo!` are an ordinary pair."""

Costs = NDArray[np.float64]
Logs = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the offset, target line − source line, at `line` of the source, or within `low` … `high`."""

    line: int
    low: int
    high: int
    before: int
    offset: int
    """The offset from here on."""

    @property
    def skipped(self) -> int:
        """Source lines from `line` on that have no partner."""
        return max(0, self.before - self.offset)


def find_changes(source: Integers, target: Integers) -> list[Change]:
    """Find the changes of offset from the length of each line in characters; none if all lines correspond."""
    if min(len(source), len(target)) < 2 * BLOCK:
        return []
    costs = _Costs(source, target)
    near = range(-REACH, REACH + 1)
    offsets = sorted({*near, *(len(target) - len(source) + d for d in near)})
    by_block = [costs.by_block(offset) for offset in offsets]
    unmatched = np.full_like(by_block[0], UNMATCHED * BLOCK * costs.of_unrelated())
    table, start = np.stack([*by_block, unmatched]), offsets.index(0)
    if not _pays_to_leave(table, start):
        return []
    path = _cheapest_path(table, start)
    changes = []
    offset, end = 0, 0  # of the run before
    for index, first, last in _find_runs(path):
        # No target line has two partners: an offset that goes back leaves as many source lines out.
        if index < len(offsets) and first * BLOCK >= end + (offset - offsets[index]) - 16 * BLOCK:
            if offsets[index] != offset:
                changes.append(_locate(costs, offset, offsets[index], end, first * BLOCK, last * BLOCK))
            offset, end = offsets[index], last * BLOCK
    return changes


def fits_to_the_end(source: Integers, target: Integers, lines: int = 256) -> bool:
    """Whether the last lines that both files have clearly correspond without an offset."""
    shorter = min(len(source), len(target))
    if not shorter:
        return False
    costs, span = _Costs(source, target), (max(0, shorter - lines), shorter)
    here = costs.at(0, *span).sum()
    return all(here + SWITCH < costs.at(d, *span).sum() for d in range(-REACH, REACH + 1) if d)


class _Costs:
    def __init__(self, source: Integers, target: Integers) -> None:
        self.left, self.right = log_lengths(source), log_lengths(target)
        self.usual = float(np.median(self.right) - np.median(self.left))

    def of_unrelated(self) -> float:
        """The mean cost of pairing lines that have nothing to do with each other."""
        left = np.quantile(self.left, np.linspace(0.0, 1.0, 41))
        right = np.quantile(self.right, np.linspace(0.0, 1.0, 41))
        gaps = np.abs(right[:, None] - left[None, :] - self.usual)
        return float(np.minimum(gaps / SCALE, CAP).mean())

    def at(self, offset: int, first: int, last: int) -> Costs:
        """The cost of pairing source lines first … last − 1 with the target lines `offset` further on."""
        costs = np.full(last - first, CAP)
        low, high = max(first, -offset), min(last, len(self.right) - offset)
        if low < high:
            gaps = self.right[low + offset : high + offset] - self.left[low:high] - self.usual
            costs[low - first : high - first] = np.minimum(np.abs(gaps) / SCALE, CAP)
        return costs

    def by_block(self, offset: int) -> Costs:
        """The cost of each block of source lines."""
        total = len(self.left) // BLOCK * BLOCK
        step = BLOCK << 12  # in pieces, so that a corpus of any size needs little memory
        pieces = [self.at(offset, i, min(i + step, total)).reshape(-1, BLOCK).sum(1) for i in range(0, total, step)]
        return np.concatenate(pieces)


def _pays_to_leave(costs: Costs, start: int) -> bool:
    """Whether a change of state could pay for some run of blocks; false for clean files."""
    for state in costs:
        gains = np.cumsum(costs[start] - state)
        lowest = np.minimum(np.minimum.accumulate(gains), 0.0)
        if (gains - lowest).max() > DETOUR:
            return True
    return False


def _cheapest_path(costs: Costs, start: int) -> NDArray[np.intp]:
    """The state of each block: the index of an offset, or the last state, which is to have no partner.

    The path begins at `start` or pays for the change. Going from one offset to another by way of the last state costs
    a little more than going there at once, and less than by way of a third offset.
    """
    states, blocks = costs.shape
    price = np.full((states, states), SWITCH)
    price[-1, :] = price[:, -1] = DETOUR
    came_from = np.empty((blocks, states), np.int16)
    stay = np.arange(states, dtype=np.int16)
    total = price[start] + costs[:, 0]
    total[start] = costs[start, 0]
    for block in range(1, blocks):
        best = int(np.argmin(total[:-1]))
        via, unmatched = total[best] + price[best], total[-1] + price[-1]
        switched, where = np.minimum(via, unmatched), np.where(via <= unmatched, best, states - 1)
        changes = switched < total
        came_from[block] = np.where(changes, where, stay)
        total = np.where(changes, switched, total) + costs[:, block]
    path = np.empty(blocks, np.intp)
    path[-1] = np.argmin(total)
    for block in range(blocks - 1, 0, -1):
        path[block - 1] = came_from[block, path[block]]
    return path


def _find_runs(path: NDArray[np.intp]) -> list[tuple[int, int, int]]:
    """The runs of equal values: value, first and last + 1."""
    bounds = [0, *(np.flatnonzero(path[1:] != path[:-1]) + 1).tolist(), len(path)]
    return [(int(path[first]), first, last) for first, last in pairwise(bounds)]


def _locate(costs: _Costs, before: int, after: int, end: int, start: int, last: int) -> Change:
    """Find the line of the change between two offsets that hold before line `end` and from line `start` on."""
    skipped = max(0, before - after)
    first, last = max(0, end - 16 * BLOCK), min(last, start + skipped + 16 * BLOCK)
    kept = np.concatenate([[0.0], np.cumsum(costs.at(before, first, last))])
    resumed = np.concatenate([np.cumsum(costs.at(after, first, last)[::-1])[::-1], [0.0]])
    skipped = min(skipped, last - first)
    totals = kept[: len(kept) - skipped] + resumed[skipped:]
    good = np.flatnonzero(totals <= totals.min() + DOUBT)
    line = first + int(np.argmin(totals)) + 1
    return Change(line, first + int(good[0]) + 1, first + int(good[-1]) + 1, before, after)


def log_lengths(lengths: Integers) -> Logs:
    """Logarithms of smoothed lengths."""
    logs: Logs = np.log(lengths.astype(np.float32) + SMOOTHING)
    return logs


def log_ratios(left: Integers, right: Integers) -> Logs:
    """log(right/left) of smoothed lengths, less its median, which is the usual ratio of the two languages."""
    ratios = log_lengths(right)
    ratios -= log_lengths(left)
    if len(ratios):
        ratios -= np.median(ratios)
    return ratios


def line_lengths(path: str, max_line: int) -> Integers:
    """The length of each line in characters."""
    blocks = [np.fromiter(map(len, b.lines), np.int32, len(b.lines)) for b in read_blocks(path, max_line)]
    return np.concatenate(blocks).astype(np.int64) if blocks else np.zeros(0, np.int64)


def explain_unequal(fault: Fault, target: str, max_line: int) -> Fault:
    """Add to a fault about unequal line counts where the files most likely get out of step."""
    source = fault.path
    left, right = line_lengths(source, max_line), line_lengths(target, max_line)
    changes = find_changes(left, right)
    if changes:
        line, message = changes[0].line, describe_change(changes[0], source, target)
        if len(changes) > 1:
            message += f"; {len(changes) - 1} more such places follow"
    elif fits_to_the_end(left, right):
        longer, extra = (source, len(left) - len(right)) if len(left) > len(right) else (target, len(right) - len(left))
        line, message = fault.line, f"the last {extra:,} lines of {longer} have no counterpart; the others match"
    else:
        line, message = fault.line, "the line lengths do not show where the files get out of step"
    return Fault(fault.kind, fault.path, line, f"{fault.message}; {message}")


def describe_change(change: Change, source: str, target: str) -> str:
    """Describe where lines were inserted or lost."""
    step = change.offset - change.before
    longer, shorter = (target, source) if step > 0 else (source, target)
    extra = "one line" if abs(step) == 1 else f"{abs(step):,} lines"
    between = f" (between {change.low:,} and {change.high:,})" if change.low < change.high else ""
    return (
        f"the files most likely get out of step at line {change.line:,}{between},"
        f" where {longer} has {extra} more than {shorter}"
    )


def find_misaligned(path: str, other: str, left: Integers, right: Integers, lines: Integers) -> list[Fault]:
    """Find where files with equal line counts fit better when one is shifted."""
    faults = []
    for change in find_changes(left, right):
        at = int(lines[min(change.line, len(lines)) - 1])
        if change.offset:
            message = f"from here on, line N fits line N{change.offset:+,} of {other} better than line N"
        else:
            message = "from here on, the lines match again"
        faults.append(Fault("misaligned", path, at, message))
    return faults


def pair_lines(source: str, target: str, max_line: int) -> tuple[Integers, Integers] | None:
    """The indices of corresponding lines on each side; None if the lengths do not show them."""
    left, right = line_lengths(source, max_line), line_lengths(target, max_line)
    changes = find_changes(left, right)
    if not changes and not fits_to_the_end(left, right):
        return None
    starts = [0, *(change.high - 1 + change.skipped + MARGIN for change in changes)]
    ends = [*(change.low - 1 - MARGIN for change in changes), len(left)]
    offsets = [changes[0].before if changes else 0, *(change.offset for change in changes)]
    sources, targets = [], []
    for start, end, offset in zip(starts, ends, offsets, strict=True):
        lines = np.arange(max(start, -offset, 0), max(0, min(end, len(right) - offset)))
        sources.append(lines)
        targets.append(lines + offset)
    return np.concatenate(sources), np.concatenate(targets)
