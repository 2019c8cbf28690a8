"""A monitor that keeps what it is told."""

from rich.console import Console

from seqloom.training.monitor import PlainMonitor


class Listening(PlainMonitor):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self.heard: list[str] = []

    def say(self, message: str) -> None:
        self.heard.append(message)
