"""Before the replicas of a cluster: the gate's desk, which hands requests on and brings their answers back.

What was accepted is answered: if the machine of a replica is lost, another replica is asked, since an answer depends on
nothing but the request. Only an answer that is on its way already breaks off. Where no replica is left, requests are
told to come again (503).
"""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, Protocol

from fastapi import FastAPI, Request

from seqloom.serve.app import operator_routes, respond
from seqloom.serve.faults import DrainingError, RefusalError, TooSlowError
from seqloom.serve.guard import Message, Receive, Scope, Send
from seqloom.serve.limits import Limits
from seqloom.serve.log import Log, current
from seqloom.serve.metrics import Metrics, Numbers
from seqloom.serve.replica import NOTED, Asked

OPERATORS = ("/health", "/health/live", "/health/ready", "/metrics")
"""Addresses that the front answers itself."""
_TRIES = 3
"""Replicas that a request is sent to, each after the loss of the one before: it may itself be what ends them."""
_PAUSE = 0.5
"""Seconds between two looks at how many replicas there are."""
_KEPT = (
    "type",
    "http_version",
    "method",
    "scheme",
    "path",
    "raw_path",
    "query_string",
    "root_path",
    "headers",
    "client",
)


class LostError(Exception):
    """A replica was lost, or could not be reached, before its answer was whole."""


class Replicas(Protocol):
    """What answers somewhere else."""

    def count(self) -> int:
        """How many replicas are running."""

    def ask(self, asked: Asked) -> AsyncGenerator[list[Message]]:
        """The messages of an answer, from one of them."""

    def describe(self) -> list[str]:
        """What is served."""

    def reload(self) -> list[str]:
        """Let all load anew what has changed."""

    def find_strangers(self) -> list[str]:
        """The models that some replica has otherwise than the rest."""

    async def read_numbers(self) -> dict[str, tuple[int, Numbers]]:
        """Of each replica, how many lines wait or are in work there, and what was counted."""


class Front:
    """Requests go to replicas, and their answers come back."""

    def __init__(self, replicas: Replicas, limits: Limits, log: Log | None = None) -> None:
        self.limits, self.metrics, self.log = limits, Metrics(), log or Log()
        self.draining = False
        self.backlog = 0
        """Requests that are with a replica."""
        self._replicas, self._running, self._ended = replicas, replicas.count(), threading.Event()
        self._own = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        self._own.include_router(operator_routes(self))
        self._watching = threading.Thread(target=self._watch, name="seqloom-replicas", daemon=True)

    @property
    def health(self) -> dict[str, str | int]:
        """Whether requests are taken, and by how many replicas."""
        status = "draining" if self.draining else "ready" if self._running else "without replicas"
        return {"status": status, "replicas": self._running}

    def start(self) -> None:
        """Begin to look after the replicas."""
        self._watching.start()

    def stop(self) -> None:
        """End; the gate has waited for what was accepted."""
        self.draining = True
        self._ended.set()
        self._watching.join()

    def describe(self) -> list[str]:
        """What is served, and by how many."""
        return [*self._replicas.describe(), f"replicas: {self._running}"]

    def reload(self) -> list[str]:
        """Let all replicas load anew what has changed."""
        return self._replicas.reload()

    async def write_metrics(self) -> str:
        """The numbers of the front, and those of each replica with its name."""
        found, whole = await self._replicas.read_numbers(), Metrics()
        whole.add(self.metrics.read())
        for name, (_, numbers) in found.items():
            whole.add(numbers, replica=name)
        lines = sum(backlog for backlog, _ in found.values())
        return whole.write(
            {
                "seqloom_backlog_lines": ("Lines that wait or are in work.", float(lines)),
                "seqloom_backlog_requests": ("Requests that are with a replica.", float(self.backlog)),
                "seqloom_replicas": ("Replicas that are running.", float(self._running)),
                "seqloom_draining": ("1 while the server is about to end.", float(self.draining)),
            }
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that the gate let in."""
        if scope["path"] in OPERATORS:
            await self._own(scope, receive, send)
            return
        body = (await receive())["body"]
        asked = Asked({name: scope[name] for name in _KEPT if name in scope}, body, current.get().client)
        answer = _Answer(scope, send)
        self.backlog += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self._ask(asked, answer)
        except TimeoutError:
            await self._refuse(answer, TooSlowError(f"the answer took longer than {self.limits.seconds} s", wait=1))
        except RefusalError as error:
            await self._refuse(answer, error)
        except Exception as error:
            self.log.write("fault", error=type(error).__name__, said=str(error).strip().splitlines()[-1:])
            fault = RefusalError("something went wrong that Seqloom did not foresee; Ray's log says where", status=500)
            await self._refuse(answer, fault)
        finally:
            self.backlog -= 1

    async def _ask(self, asked: Asked, answer: "_Answer") -> None:
        for _ in range(_TRIES):
            if not self._running:
                break
            try:
                async with aclosing(self._replicas.ask(asked)) as parts:
                    async for messages in parts:
                        await answer.take(messages)
                return
            except LostError:
                self.metrics.count("seqloom_lost_total", "Answers that a replica began and did not end.")
                if answer.begun:
                    self.log.write("broken off", path=asked.scope["path"])
                    return
                answer.forget()
        raise DrainingError("no replica can answer now; ask again in a moment", wait=2)

    async def _refuse(self, answer: "_Answer", error: RefusalError) -> None:
        if not answer.begun:
            response = respond(answer.scope["path"], error.status, str(error), error.wait)
            await response(answer.scope, Request(answer.scope).receive, answer.send)

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE):
            try:
                self._look()
            except Exception as error:  # a cluster may fail in many ways, and be well again at the next look
                self.log.write("fault", error=type(error).__name__, said=str(error).strip().splitlines()[-1:])

    def _look(self) -> None:
        """See how many replicas there are, and whether those that came have the same models."""
        running = self._replicas.count()
        if running != self._running:
            self.log.write("replicas", running=running, before=self._running)
            grown, self._running = running > self._running, running
            if grown and (strangers := self._replicas.find_strangers()):
                self.log.write("replicas", others=strangers, said="they have changed; SIGHUP makes all the same")


class _Answer:
    """An answer on its way to the client; it has not begun until there is something of it but its head."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope, self.send = scope, send
        self.begun = False
        self._held: list[Message] = []

    async def take(self, messages: list[Message]) -> None:
        """Send what a replica said."""
        for message in messages:
            if message["type"] == NOTED:
                self._note(message)
                continue
            self._held.append(message)
            if message["type"] == "http.response.body":
                self.begun = True
                held, self._held = self._held, []
                for one in held:
                    await self.send(one)

    def forget(self) -> None:
        """Begin anew."""
        self._held = []

    def _note(self, message: Any) -> None:
        current.get().noted |= message["noted"]
        self.scope["route"] = SimpleNamespace(path=message["path"])
