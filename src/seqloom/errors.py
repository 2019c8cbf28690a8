"""Errors a person can act on.

Every error a user may meet is a `SeqloomError`: its text says what is wrong, where (a file and line, a dotted
configuration key, an argument), and what to do next. The command line prints the text alone; Python users get the
exception, which is also the closest built-in so that `except ValueError` works as they expect.
"""

from importlib import import_module
from typing import Any


class SeqloomError(Exception):
    """What went wrong, where, and what to do next."""


class ConfigError(SeqloomError, ValueError):
    """A configuration that cannot be used; the text lists every fault with its dotted key."""


class DataError(SeqloomError, ValueError):
    """A file of the user's that cannot be used; the text starts with `file:line` where a line is at fault."""


class ShapeError(SeqloomError, ValueError):
    """A tensor whose size does not fit; the text names the argument, what it is and what was expected."""


class RunError(SeqloomError, RuntimeError):
    """A run folder that cannot be used, or a training that cannot continue."""


class Notice(UserWarning):
    """What a user should know about an answer; the command line prints it as a note."""


def import_extra(name: str, extra: str) -> Any:
    """Import an optional library; if it is missing, the error says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        library = name.partition(".")[0]
        raise RunError(f"{library} is not installed; pip install 'seqloom[{extra}]'") from None
