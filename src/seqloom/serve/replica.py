"""A replica of a server: what answers on a machine of the cluster.

It is the application of the plain server, with its models, batcher and limits, in a process that Ray Serve starts. The
gate is elsewhere, before all replicas (`front.py`): a request arrives here read and admitted, with the name of its
client, and the answer goes back as the messages of ASGI.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqloom import __version__
from seqloom.errors import RunError, SeqloomError, import_extra
from seqloom.predict.search import Precision
from seqloom.predict.storage import identify
from seqloom.serve.app import make_app
from seqloom.serve.guard import Message
from seqloom.serve.limits import Limits
from seqloom.serve.log import Record, current
from seqloom.serve.metrics import Numbers
from seqloom.serve.models import Models
from seqloom.serve.service import Service

NOTED = "seqloom.noted"
"""The type of the last message but one of an answer: what the front notes of the request."""


@dataclass(frozen=True)
class Settings:
    """What a replica is made of."""

    models: tuple[tuple[str, Path], ...]
    """Names and folders."""
    precision: Precision
    limits: Limits
    queue: int
    threads: int
    prepare: Callable[[], object]
    """Is called first in the process of a replica."""
    version: str = __version__


@dataclass(frozen=True)
class Asked:
    """A request that was admitted."""

    scope: dict[str, Any]
    body: bytes
    client: str
    """Whose turn it takes."""


class Replica:
    """The application in a process of its own."""

    def __init__(self, settings: Settings) -> None:
        try:
            if settings.version != __version__:
                raise RunError(f"it has Seqloom {__version__}, not {settings.version}")
            settings.prepare()
            torch.set_num_threads(settings.threads)
            models = Models(settings.models, precision=settings.precision)
        except (SeqloomError, OSError) as error:
            raise RunError(
                f"{socket.gethostname()} cannot serve ({error}); every machine of a Ray cluster needs the same "
                "Seqloom, and must see the same runs under the same names"
            ) from None
        self._service = Service(models, settings.limits, queue=settings.queue)
        self._app = make_app(self._service)
        self._identities = self._identify()
        self._service.start()

    async def identify(self) -> dict[str, str]:
        """A hash of each model that is loaded."""
        return self._identities

    async def reload(self) -> list[str]:
        """Load anew what has changed, and say so; requests go on meanwhile."""
        loop = asyncio.get_running_loop()
        said = await loop.run_in_executor(None, self._service.reload)
        self._identities = await loop.run_in_executor(None, self._identify)
        return [f"{socket.gethostname()}: {one}" for one in said]

    def _identify(self) -> dict[str, str]:
        return {one.name: identify(one.folder) for one in self._service.models}

    async def answer(self, asked: Asked) -> AsyncIterator[list[Message]]:
        """The messages of an answer, as many at a time as are there; the last but one says what was noted."""
        record = Record(asked.scope["method"], asked.scope["path"], asked.client)
        current.set(record)
        given, messages = [asked.body], asyncio.Queue[Message | None]()

        async def receive() -> Message:
            if given:
                return {"type": "http.request", "body": given.pop(), "more_body": False}
            return await asyncio.Future()  # a client who leaves cancels everything

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                path = getattr(asked.scope.get("route"), "path", "other")
                messages.put_nowait({"type": NOTED, "path": path, "noted": record.noted})
            messages.put_nowait(message)

        answering = asyncio.ensure_future(self._app(asked.scope, receive, send))
        answering.add_done_callback(lambda _: messages.put_nowait(None))
        try:
            while (message := await messages.get()) is not None:
                ready = [message]
                while not messages.empty() and (message := messages.get_nowait()) is not None:
                    ready.append(message)
                yield ready
                if message is None:
                    break
            await answering
        finally:
            answering.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await answering

    async def describe(self) -> list[str]:
        """What is served."""
        return self._service.describe()

    async def read_numbers(self) -> tuple[str, int, Numbers]:
        """Its name, how many lines wait or are in work here, and what was counted."""
        own = import_extra("ray.serve", "ray").get_replica_context().replica_id.unique_id
        return own, self._service.backlog, self._service.metrics.read()
