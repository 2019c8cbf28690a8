"""The process of `seqloom serve`: a socket, signals, and an end that loses nothing.

SIGTERM and Ctrl-C: what was accepted is answered, what comes now is told to ask again (503), then the process ends; a
second signal ends it at once. SIGHUP: models whose folders changed, the keys and the certificate are read again.
"""

import asyncio
import errno
import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import FrameType

import torch
import uvicorn

from seqloom.errors import ConfigError, RunError, SeqloomError
from seqloom.predict.model import Model
from seqloom.serve.app import make_app, write_refusal
from seqloom.serve.desk import Desk
from seqloom.serve.gate import Gate
from seqloom.serve.guard import App
from seqloom.serve.keys import Keys
from seqloom.serve.models import Models
from seqloom.serve.service import Service
from seqloom.serve.subject import Subject

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
_PAUSE = 0.05


@dataclass(frozen=True)
class Place:
    """Where a server listens, and who may ask."""

    host: str = "127.0.0.1"
    port: int = 8000
    keys: Path | None = None
    open: bool = False
    certificate: Path | None = None
    private_key: Path | None = None
    explore: bool = False

    def check(self) -> None:
        """Refuse to be reached by others without a key, unless that is what is wanted."""
        if not is_loopback(self.host) and self.keys is None and not self.open:
            raise ConfigError(
                f"host: other machines can reach {self.host}; give the keys of those who may ask (`keys`), or say that "
                "anyone may (`open`)"
            )
        if self.explore and self.keys is None:
            raise ConfigError("explore: shows sentences of the training data, so it needs `keys`")
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigError("certificate and private_key go together; give both, or none")

    @property
    def address(self) -> str:
        """The beginning of every address."""
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{f'[{self.host}]' if ':' in self.host else self.host}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind_to(host: str, port: int) -> socket.socket:
    """A socket; port 0 is any free one."""
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        said = {
            errno.EADDRINUSE: f"port {port} is in use; choose another one with --port",
            errno.EACCES: f"port {port} is not yours to use; choose one above 1023",
            errno.EADDRNOTAVAIL: f"{host} is no address of this machine",
        }
        raise RunError(said.get(error.errno or 0, f"{host}:{port} cannot be used: {error}")) from None
    return listening


class _Server(uvicorn.Server):
    """A server that answers what it accepted before it ends."""

    def __init__(self, config: uvicorn.Config, gate: Gate, desk: Desk) -> None:
        super().__init__(config)
        self._gate, self._desk = gate, desk

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """At the first signal, take nothing new; at the second, end."""
        if self._desk.draining:
            super().handle_exit(sig, frame)
            return
        self._desk.draining = True
        self._desk.log.write("draining", asked=self._gate.asked, backlog=self._desk.backlog)

    async def on_tick(self, counter: int) -> bool:
        """End once everything that was accepted is answered."""
        if self._desk.draining and self._gate.asked == 0:
            self.should_exit = True
        return await super().on_tick(counter)


def list_explored(models: Models) -> dict[str, Subject]:
    """What can be looked into: the models as they are served, by name."""
    return {one.name: Subject(one.folder, Model(one.predictor)) for one in models}


def run(service: Service, place: Place, listening: socket.socket, say: Callable[[str], None]) -> None:
    """Serve until a signal comes."""
    if service.pace.workers > 1:
        torch.set_num_threads(1)  # what is left to do here is little, and the workers have the cores
    explored = list_explored(service.models) if place.explore else {}
    listen(service, make_app(service, explored), place, listening, say)


def listen(desk: Desk, app: App, place: Place, listening: socket.socket, say: Callable[[str], None]) -> None:
    """Answer at an address until a signal comes."""
    keys = None if place.keys is None else Keys(place.keys)
    hosts = LOOPBACK if is_loopback(place.host) and keys is None and not place.open else None
    gate = Gate(app, desk, write_refusal, keys=keys, hosts=hosts)
    config = uvicorn.Config(
        gate,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        http="h11",  # whatever else is installed: this one is strict, and bounds what a head may hold
        loop="asyncio",
        ws="none",
        timeout_keep_alive=30,
        ssl_certfile=place.certificate,
        ssl_keyfile=place.private_key,
    )
    server = _Server(config, gate, desk)
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"certificate: {place.certificate} and {place.private_key} cannot be used: {error}") from None

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, reload))
        await server.serve(sockets=[listening])

    def reload() -> None:
        said = desk.reload()
        try:
            if keys is not None:
                keys.reload()
            if config.ssl is not None:
                config.ssl.load_cert_chain(str(place.certificate), str(place.private_key))
        except (SeqloomError, OSError) as error:
            said.append(f"stays as it was: {error}")
        desk.log.write("reload", said=said)

    desk.start()
    try:
        for line in desk.describe():
            say(line)
        say(f"at {place.address}:{listening.getsockname()[1]}; Ctrl-C stops")
        asyncio.run(serve())
    except KeyboardInterrupt:
        pass
    finally:
        desk.stop()
    say("stopped")
