"""A server in this process: models of random weights, asked through ASGI or at a real address."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from seqloom.predict.search import Precision
from seqloom.serve.app import make_server
from seqloom.serve.keys import Keys
from seqloom.serve.launch import bind_to, list_explored
from seqloom.serve.limits import Limits
from seqloom.serve.log import Log
from seqloom.serve.models import Models
from seqloom.serve.pace import set_pace
from seqloom.serve.service import Service
from unit.serve.conftest import make_run

TASKS = ("translation", "language-model", "classification", "tagging", "masked-language-model")


class Served:
    """A service and its application."""

    def __init__(
        self,
        folders: dict[str, Path],
        *,
        keys: Keys | None = None,
        queue: int = 4096,
        explore: bool = False,
        precision: Precision = "float32",
        workers: int = 1,
        **limits: int,
    ) -> None:
        self.heard = io.StringIO()
        models = Models(folders.items(), precision=precision)
        self.service = Service(models, Limits(**limits), queue=queue, log=Log(self.heard), pace=set_pace(workers))
        hosts = ("127.0.0.1", "localhost")
        explored = list_explored(models) if explore else {}
        self.app = make_server(self.service, keys=keys, hosts=hosts, explored=explored)

    def __enter__(self) -> "Served":
        self.service.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.service.stop()

    def open_client(self, **more: Any) -> httpx.AsyncClient:
        """A client that asks the application itself."""
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://127.0.0.1:8000", **more)

    @contextmanager
    def listen(self, certificate: Path | None = None, key: Path | None = None) -> Iterator[str]:
        """A real address, for clients that know nothing else."""
        files = {} if certificate is None else {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
        same = {"lifespan": "off", "http": "h11", "loop": "asyncio", "ws": "none"}  # as the command has it
        config = uvicorn.Config(self.app, log_level="critical", **same, **files)  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        with bind_to("127.0.0.1", 0) as listening:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            try:
                yield f"http{'s' * bool(files)}://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = True
                thread.join()


def make_folders(folder: Path, tasks: tuple[str, ...] = TASKS) -> dict[str, Path]:
    """A run of random weights for each task."""
    return {task: make_run(folder / task, task) for task in tasks}
