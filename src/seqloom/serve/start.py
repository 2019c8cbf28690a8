"""Starting the server of `seqloom explore` in this process, and a browser at its address."""

import errno
import socket
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from html import escape
from pathlib import Path

import uvicorn

from seqloom.errors import RunError
from seqloom.serve.explore import make_app
from seqloom.serve.guard import draw_token
from seqloom.serve.subject import Subject

_HOST = "127.0.0.1"


def run(subject: Subject, listening: socket.socket, say: Callable[[str], None], *, browser: bool) -> None:
    """Serve the page on a socket until Ctrl-C."""
    port, token = listening.getsockname()[1], draw_token()
    address = f"http://{_HOST}:{port}/#token={token}"
    config = uvicorn.Config(
        make_app(subject, port=port, token=token),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
    )
    say(f"exploring {subject.folder} at {address}")
    say("the address holds the key to this server, so keep it to yourself; Ctrl-C stops")
    with _browser(address, say) if browser else nullcontext(), suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
    say("stopped")


def bind(port: int) -> socket.socket:
    """A socket on the loopback address, which other machines cannot reach; port 0 is any free one."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_HOST, port))
        listening.listen(128)  # until then, two could hold the same port
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise RunError(f"port {port} is in use; choose another one, or leave --port out for any free one") from None
        if error.errno == errno.EACCES:
            raise RunError(f"port {port} is not yours to use; choose one above 1023, or leave --port out") from None
        raise
    return listening


@contextmanager
def _browser(address: str, say: Callable[[str], None]) -> Iterator[None]:
    """Open a browser, by way of a file that only this user can read: others see the arguments of a process."""
    with tempfile.TemporaryDirectory(prefix="seqloom-") as folder:
        page = Path(folder) / "open.html"
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}"><title>Seqloom</title>',
            encoding="utf-8",
        )
        page.chmod(0o600)
        if not _open(page.as_uri()):
            say("no browser could be opened here; open the address yourself")
        yield


def _open(address: str) -> bool:
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False
