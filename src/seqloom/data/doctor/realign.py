"""Two files of unequal line counts -> the pairs of lines that still belong together."""

import numpy as np

from seqloom.data.doctor.alignment import line_lengths
from seqloom.data.doctor.drift import find_changes, fits_to_the_end
from seqloom.data.doctor.ledger import Column

MARGIN = 2
"""Lines dropped beyond the range in which a change may lie: its exact place is an estimate."""


def pair_lines(source: str, target: str, max_line: int) -> tuple[Column, Column] | None:
    """The indices of lines that belong together, on each side; None where the lengths do not tell."""
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
