"""What a process that listens needs of whatever answers: a service of its own, or replicas on a cluster."""

from typing import Protocol

from seqloom.serve.limits import Limits
from seqloom.serve.log import Log
from seqloom.serve.metrics import Metrics


class Desk(Protocol):
    """Whatever answers, as the gate and the operators see it."""

    draining: bool
    """Whether the server is about to end, and takes nothing new."""

    @property
    def limits(self) -> Limits:
        """What a request may ask for."""

    @property
    def metrics(self) -> Metrics:
        """Where requests are counted."""

    @property
    def log(self) -> Log:
        """Where requests are written down."""

    @property
    def health(self) -> dict[str, str | int]:
        """`status`, which is `ready` or says why no requests are taken, and how many compute."""

    @property
    def backlog(self) -> int:
        """How many texts wait or are in work."""

    def start(self) -> None:
        """Begin to compute."""

    def stop(self) -> None:
        """Compute what was accepted, then end."""

    def describe(self) -> list[str]:
        """What is served, and what an operator should know about it."""

    def reload(self) -> list[str]:
        """Load anew what has changed, and say so."""

    async def write_metrics(self) -> str:
        """Numbers in Prometheus's text format."""
