"""How a command sets up its own process: freed memory is kept, and a signal lets the job save first."""

import ctypes
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import cache, wraps
from types import FrameType
from typing import Any, ClassVar, TypeVar

from seqloom.errors import DataError, RunError

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # as malloc.h numbers them
_SETTINGS = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**26))
_AGAIN = 1.0  # seconds after which a second signal is a new request, not an echo of the first
T = TypeVar("T")


@cache
def disable_trimming() -> bool:
    """Make glibc's malloc keep freed memory; returns False if the C library has no such setting.

    glibc gives large blocks back to the system as soon as they are free, and every training step or batch of lines
    asks for the same ones again. The system must clear each page anew: some 7,000 pages a step for a translation model
    of width 256, a few hundred without trimming. This changes the whole process, so only processes of the command line
    do it, and the workers that `--engine ray` starts. A program that imports Seqloom keeps its malloc as it was.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is None:
        return False
    taken = [mallopt(name, value) for name, value in _SETTINGS]
    return taken == [1] * len(taken)


def call_without_trimming(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a worker process that was started only for this."""
    disable_trimming()
    return function(*arguments)


def starts_quickly(command: Callable[..., T]) -> Callable[..., T]:
    """A command during whose start Python does not look for garbage, until the command calls `resume_collection`.

    While modules and a model are loaded, hundreds of thousands of objects come and nearly all stay. Python would go
    through them all again and again, which takes a fifth of the time of the start.
    """

    @wraps(command)
    def start(*arguments: Any, **options: Any) -> T:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return command(*arguments, **options)
        finally:
            if was_enabled:
                gc.enable()

    return start


def resume_collection() -> None:
    """The start is over: from now on, Python looks for garbage as usual, but not among what is there already."""
    gc.freeze()
    gc.enable()


class _ClosedInput(io.RawIOBase):
    """Standard input that was closed before we started."""

    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise DataError("standard input is closed; give a file, or pipe text into the command")


def replace_closed_streams() -> None:
    """Stand in for streams that were closed before we started (`<&-`), for which Python has None.

    Their numbers are taken, too: otherwise the next file that is opened would be standard output to some library.
    """
    closed = [number for number in range(3) if not _is_open(number)]
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - stays open
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedInput()), encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - stays open
        raise RunError("standard output is closed; send it to a file, or to /dev/null")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


class Stop:
    """Whether SIGTERM or SIGINT came. A job that asks can save first; a job that has not asked yet ends at once.

    A second signal ends any job at once.
    """

    exit_code: ClassVar[int | None] = None
    """That of a job that was ended at once. What is raised to end it may come out of a library as another error."""

    def __init__(self) -> None:
        self.number = 0
        """The signal that came; 0 if none."""
        self._asked, self._when = False, 0.0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def __call__(self) -> bool:
        """Whether to stop."""
        self._asked = True
        return self.number > 0

    def _receive(self, number: int, _: FrameType | None) -> None:
        at_once = not self._asked or (self.number and time.monotonic() - self._when > _AGAIN)
        self.number, self._when = number, time.monotonic()
        if at_once:
            Stop.exit_code = 128 + number
            raise SystemExit(Stop.exit_code)
