"""Processes that compute with one thread each, beside the one that answers requests.

The threads of one product wait for each other after each of thousands of products, and Python computes in one thread
of a process at a time. Processes that compute different lines wait for nobody. A worker has models and groups, and
nothing else: requests, turns, limits and numbers stay where they are (`batcher.py`), in one place. Models are sent to
it, so it answers by the same weights whatever has become of the folder they were loaded from.

A worker leaves signals to the process that started it, and ends when that closes the pipe, or dies.
"""

import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any
from weakref import WeakKeyDictionary

import torch

from seqloom.errors import SeqloomError
from seqloom.predict.predictor import Predictor
from seqloom.serve.computer import Computer, LocalComputer, WorkerLostError
from seqloom.serve.groups import Found, Given
from seqloom.serve.work import Kind

PERIOD = 0.01
"""Seconds for which a worker goes on with a group, if no line is done, before it asks what is new."""
_PATIENCE = 10.0
"""Seconds in which a worker ends by itself once it is told to."""
_PAUSE = 1.0
"""Seconds between two attempts to start a worker."""
Call = Callable[..., None]
"""How the function of a new process is called: a command sets up the process before."""
_lock, _numbers = threading.Lock(), count()
_known: "WeakKeyDictionary[Predictor, int]" = WeakKeyDictionary()
"""The number of each model, by which workers know it."""


def call(function: Callable[..., None], *given: Any) -> None:
    """Call a function, in a process that needs no setting up."""
    function(*given)


class WorkerFaultError(Exception):
    """An error that nobody foresaw, in a worker: which one, and where; its words may hold a text."""

    def __init__(self, kind: str, places: list[str]) -> None:
        super().__init__(kind, places)
        self.kind, self.places = kind, places


class Worker(Computer):
    """A process that computes groups."""

    def __init__(self, begin: Call = call) -> None:
        """`begin` calls the function of the process, in it."""
        self._begin = begin
        self._process: Any = None
        self._pipe: Connection | None = None
        self._sent: set[int] = set()
        """The numbers of the models that it has."""
        self._groups = count()

    @property
    def pid(self) -> int | None:
        """The number of the process."""
        return None if self._process is None else self._process.pid

    def start(self, predictors: Sequence[Predictor]) -> None:
        """Start the process, and give it these models."""
        context = get_context("spawn")
        self._process, self._sent = None, set()
        self._pipe, other = context.Pipe()
        with other:
            process = context.Process(target=self._begin, args=(serve, other), name="seqloom-worker", daemon=True)
            process.start()
        self._process = process
        for predictor in predictors:
            self._teach(predictor)

    def wait(self) -> None:
        """Wait until it has read all that it was sent."""
        self._send("wait")
        self._receive()

    def stop(self) -> None:
        """Close the pipe, at which the process ends."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.join(_PATIENCE)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()

    def restart(self) -> None:
        """Start another process in place of one that has ended, until one begins."""
        while True:
            self.stop()
            try:
                self.start(())
                self.wait()
            except (OSError, WorkerLostError):
                time.sleep(_PAUSE)
            else:
                return

    def open(self, predictor: Predictor, kind: Kind) -> int:
        """Make a group, and give its number."""
        number = next(self._groups)
        self._send("open", number, self._teach(predictor), kind)
        return number

    def step(self, group: int, added: Sequence[Given], removed: Collection[int]) -> Found:
        """Let lines come in and leave, and take steps until a line is done, or for a moment."""
        self._send("step", group, added, removed)
        found = self._receive()
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Found)
        return found

    def close(self, group: int) -> None:
        """Forget a group."""
        self._send("close", group)

    def _teach(self, predictor: Predictor) -> int:
        """Send a model that the worker does not have; it forgets those that are gone here."""
        with _lock:
            number = _known.setdefault(predictor, next(_numbers))
            alive = {*_known.values()}
        if number not in self._sent:
            self._send("learn", number, predictor, alive)
            self._sent = (self._sent & alive) | {number}
        return number

    def _send(self, *message: Any) -> None:
        assert self._pipe is not None
        try:
            self._pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        except OSError:
            raise WorkerLostError(computing=False) from None

    def _receive(self) -> Any:
        assert self._pipe is not None
        try:
            return pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise WorkerLostError(computing=True) from None


def serve(pipe: Connection) -> None:
    """What a worker does, until the pipe is closed."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    torch.set_num_threads(1)
    worker = _Served()
    try:
        while True:
            answer = worker.answer(*pickle.loads(pipe.recv_bytes()))
            if answer is not None:
                pipe.send_bytes(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
    except (EOFError, OSError):
        os._exit(0)  # nothing is left to write, and to take torch apart takes a while


class _Served:
    """What a worker knows."""

    def __init__(self) -> None:
        self._computer = LocalComputer()
        self._models: dict[int, Predictor] = {}
        self._kinds: dict[int, tuple[Predictor, Kind]] = {}
        """What groups are to be, which are made at their first step."""
        self._groups: dict[int, int] = {}

    def answer(self, what: str, *given: Any) -> Any:
        """What it says to a message, if anything."""
        match what:
            case "learn":
                number, predictor, alive = given
                self._models = {one: model for one, model in self._models.items() if one in alive} | {number: predictor}
                predictor.compile()
            case "open":
                group, model, kind = given
                self._kinds[group] = self._models[model], kind
            case "close":
                self._kinds.pop(given[0], None)
                if given[0] in self._groups:
                    self._computer.close(self._groups.pop(given[0]))
            case "wait":
                return "ready"
            case "step":
                return self._step(*given)
        return None

    def _step(self, group: int, added: Sequence[Given], removed: Collection[int]) -> Found | Exception:
        until = time.perf_counter() + PERIOD
        try:
            if group not in self._groups:
                self._groups[group] = self._computer.open(*self._kinds.pop(group))
            found = self._computer.step(self._groups[group], added, removed)
            while not found.lines and time.perf_counter() < until:
                found.add(self._computer.step(self._groups[group], (), ()))
        except SeqloomError as error:
            return error
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            return WorkerFaultError(type(error).__name__, [f"{one.filename}:{one.lineno}" for one in frames])
        return found
