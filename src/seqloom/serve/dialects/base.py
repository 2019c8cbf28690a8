"""What a dialect is: its addresses, its routes, and the form in which it says that something is wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from seqloom.serve.service import Service

Say = Callable[[int, str], dict[str, Any]]


@dataclass(frozen=True)
class Dialect:
    """One dialect."""

    name: str
    prefixes: tuple[str, ...]
    """What its addresses begin with; one that ends in a slash is the beginning of a path, any other is whole."""
    routes: Callable[[Service], APIRouter]
    say: Say
    """A refusal: the status and a sentence, as an object."""

    def owns(self, path: str) -> bool:
        """Whether an address is one of its own."""
        return any(path.startswith(one) if one.endswith("/") and one != "/" else path == one for one in self.prefixes)


def say_plainly(status: int, sentence: str) -> dict[str, Any]:
    """The form of most: {"error": "a sentence"}."""
    return {"error": sentence}
