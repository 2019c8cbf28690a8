"""A `seqloom` for shells that starts at once: a process that has imported everything forks for each command."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forked import run_on

_MOST = 1 << 20  # bytes of a command with its environment
_CLIENT = """#!{python} -SE
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
command = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(server, [json.dumps(command).encode()], [0, 1, 2])
signal.signal(signal.SIGTERM, lambda *_: server.send(b"T"))  # for the process that does the work
code = server.recv(1)
sys.exit(code[0] if code else 70)
"""


@contextmanager
def warm_seqloom(folder: Path) -> Iterator[Path]:
    """A folder for PATH with a `seqloom` in it."""
    address, commands = folder / "socket", folder / "bin"
    commands.mkdir()
    client = commands / "seqloom"
    client.write_text(_CLIENT.format(python=sys.executable, path=str(address)))
    client.chmod(0o755)
    server = subprocess.Popen([sys.executable, __file__, str(address)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield commands
    finally:
        server.kill()
        server.wait()


def _serve(address: str) -> None:
    import seqloom.cli.search
    import seqloom.cli.train
    import seqloom.training.job  # noqa: F401 - what most commands import first

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them but those who asked
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while True:
        asker, _ = listener.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            asker.send(bytes([_run(asker)]))
            os._exit(0)
        asker.close()


def _pass_on(asker: socket.socket) -> None:
    """Be ended when the one who asked is ended."""
    if asker.recv(1) == b"T":
        os.kill(os.getpid(), signal.SIGTERM)


def _run(asker: socket.socket) -> int:
    message, descriptors, _, _ = socket.recv_fds(asker, _MOST, 3)
    threading.Thread(target=_pass_on, args=(asker,), daemon=True).start()
    command = json.loads(message)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    return run_on(command["arguments"], descriptors)


if __name__ == "__main__":
    _serve(sys.argv[1])
