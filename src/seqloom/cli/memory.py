"""Freed memory that is needed again at once should not go back to the system in between.

glibc gives large blocks back as soon as they are free, and every step of training, or batch of lines, asks for the same
ones again: the system then hands out each page anew, cleared. For a translation model of width 256 these are some 7,000
pages a step, and with what is set here a few hundred.

This changes the whole process, so it is for processes that do nothing else: those of the command line, the ranks of
`seqloom train --processes`, which are commands of their own, and the workers that `--engine ray` starts. A program that
imports Seqloom has its malloc as it was.
"""

import ctypes
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqloom.predict.bulk import Verb
    from seqloom.predict.results import Result

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # as malloc.h numbers them
_SETTINGS = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**26))


@cache
def keep_freed_memory() -> bool:
    """Let this process keep what it frees for its next step; False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is None:
        return False
    taken = [mallopt(name, value) for name, value in _SETTINGS]
    return taken == [1] * len(taken)


def call_in_worker(verb: "Verb", *given: Any) -> "Sequence[Result]":
    """Apply a verb in a worker process that was started for this alone."""
    keep_freed_memory()
    return verb(*given)
