"""Where groups are computed: in this process, or in another one (`workers.py`)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from itertools import count

import torch

from seqloom.predict.predictor import Predictor
from seqloom.serve.groups import Found, Given, Group, make_group
from seqloom.serve.work import Kind


class WorkerLostError(Exception):
    """A process has ended, and with it all groups that it had."""

    def __init__(self, *, computing: bool) -> None:
        """`computing` says whether it ended while it computed what it was asked for."""
        super().__init__("a worker has ended")
        self.computing = computing


class Computer(ABC):
    """Computes groups, one step at a time, for one thread that asks."""

    @abstractmethod
    def start(self, predictors: Sequence[Predictor]) -> None:
        """Begin, with these models at hand."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until it is ready."""

    @abstractmethod
    def stop(self) -> None:
        """End."""

    @abstractmethod
    def restart(self) -> None:
        """Begin anew, with no groups."""

    @abstractmethod
    def open(self, predictor: Predictor, kind: Kind) -> int:
        """Make a group, and give its number."""

    @abstractmethod
    def step(self, group: int, added: Sequence[Given], removed: Collection[int]) -> Found:
        """Let lines come in and leave, and take one step, or several if nothing comes of the first."""

    @abstractmethod
    def close(self, group: int) -> None:
        """Forget a group."""


class LocalComputer(Computer):
    """Computes in the thread that asks."""

    def __init__(self) -> None:
        self._groups: dict[int, Group] = {}
        self._numbers = count()

    def start(self, predictors: Sequence[Predictor]) -> None:
        """Nothing begins."""

    def wait(self) -> None:
        """It is ready."""

    def stop(self) -> None:
        """Nothing ends."""

    def restart(self) -> None:
        """Forget all groups."""
        self._groups.clear()

    def open(self, predictor: Predictor, kind: Kind) -> int:
        """Make a group, and give its number."""
        number = next(self._numbers)
        self._groups[number] = make_group(predictor, kind)
        return number

    @torch.inference_mode()
    def step(self, group: int, added: Sequence[Given], removed: Collection[int]) -> Found:
        """Let lines come in and leave, and take one step."""
        own = self._groups[group]
        own.remove(removed)
        own.add(added)
        return own.step()

    def close(self, group: int) -> None:
        """Forget a group."""
        del self._groups[group]
