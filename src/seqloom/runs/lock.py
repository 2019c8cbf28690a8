"""A lock on a file: one process at a time may write. It ends with its holder, whatever becomes of that."""

import warnings
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has no fcntl
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # and only Windows has msvcrt
    msvcrt = None  # type: ignore[assignment]


def hold(file: IO[Any]) -> None:
    """Lock an open file until it is closed; BlockingIOError where another process holds it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif msvcrt is not None:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(*error.args) from None
    else:
        warnings.warn(f"this system has no file locks: let no other process write to {file.name}", stacklevel=2)
