"""Whether the lines of parallel files belong together, judged by their lengths."""

import numpy as np

from seqloom.data.doctor.drift import Change, find_changes, fits_to_the_end
from seqloom.data.doctor.ledger import Column
from seqloom.data.fault import Fault
from seqloom.data.lines import read_blocks


def line_lengths(path: str, max_line: int) -> Column:
    """The length of each line in characters."""
    blocks = [np.fromiter(map(len, b.lines), np.int32, len(b.lines)) for b in read_blocks(path, max_line)]
    return np.concatenate(blocks).astype(np.int64) if blocks else np.zeros(0, np.int64)


def explain_unequal(fault: Fault, target: str, max_line: int) -> Fault:
    """A fault about unequal line counts, now with the place where the drift most likely starts."""
    source = fault.path
    left, right = line_lengths(source, max_line), line_lengths(target, max_line)
    changes = find_changes(left, right)
    if changes:
        line, message = changes[0].line, describe_change(changes[0], source, target)
        if len(changes) > 1:
            message += f"; {len(changes) - 1} more such places follow"
    elif fits_to_the_end(left, right):
        longer, extra = (source, len(left) - len(right)) if len(left) > len(right) else (target, len(right) - len(left))
        line, message = fault.line, f"the lines fit to the end; the last {extra:,} of {longer} have no partner"
    else:
        line, message = fault.line, "the lengths of the lines do not show where they start to differ"
    return Fault(fault.kind, fault.path, line, f"{fault.message}; {message}")


def describe_change(change: Change, source: str, target: str) -> str:
    """Where lines were inserted or lost, in words."""
    step = change.offset - change.before
    which, other = (target, source) if step > 0 else (source, target)
    lines = "a line" if abs(step) == 1 else f"{abs(step):,} lines"
    return (
        f"the drift most likely starts at line {change.line:,} (between {change.low:,} and {change.high:,}),"
        f" where {which} has {lines} more than {other}"
    )


def find_misaligned(path: str, other: str, left: Column, right: Column, lines: Column) -> list[Fault]:
    """Places where files with equal line counts fit better when one is shifted."""
    faults = []
    for change in find_changes(left, right):
        at = int(lines[min(change.line, len(lines)) - 1])
        if change.offset:
            message = f"from here on the lines fit better when {other} is shifted by {change.offset:+,}"
        else:
            message = "from here on the lines fit again as they stand"
        faults.append(Fault("misaligned", path, at, message))
    return faults
