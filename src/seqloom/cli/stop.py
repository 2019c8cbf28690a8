"""Signals that ask a long job to stop."""

import signal
import time
from types import FrameType

_AGAIN = 1.0  # seconds after which a second signal is another wish, not an echo of the first


class Stop:
    """Whether SIGTERM or SIGINT came. A job that asks can save before it ends; one that has not asked yet ends at once.

    So does one that is told twice.
    """

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
        if not self._asked or (self.number and time.monotonic() - self._when > _AGAIN):
            raise SystemExit(128 + number)
        self.number, self._when = number, time.monotonic()
