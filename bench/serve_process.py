"""Servers and the load of bench/serve.py, as processes of their own, and the CPU that each of them takes."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from timing import measure_machine

HERE = Path(__file__).parent
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE = 240
"""Seconds in which the first answers of a server must be there."""


class Server(NamedTuple):
    """A server that listens."""

    port: int
    pid: int


class Cpu(NamedTuple):
    """Seconds of CPU so far."""

    front: float
    """Of the processes that answer requests."""
    others: float
    """Of the processes that these have started."""
    machine: float


@contextmanager
def serving(
    contender: str, task: str, folder: Path, options: Sequence[str] = (), cores: Sequence[int] = ()
) -> Iterator[Server]:
    """A contender's server, on some cores or on all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(HERE / "serve_peers.py"), contender, task, str(folder), "--port", str(port)]
    if contender == "Seqloom":
        command = [sys.executable, "-m", "seqloom", "serve", f"model={folder}", "--port", str(port), *options]
    before = os.sched_getaffinity(0)
    with tempfile.TemporaryFile() as errors:
        try:
            os.sched_setaffinity(0, cores or before)  # as the server has it, from its start
            server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        finally:
            os.sched_setaffinity(0, before)
        try:
            for _ in range(10 * _PATIENCE):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if server.poll() is not None:
                    errors.seek(0)
                    raise SystemExit(f"{contender} ended with {server.returncode}: {errors.read()[-2000:].decode()}")
                time.sleep(0.1)
            yield Server(port, server.pid)
        finally:
            end(server)


def end(server: "subprocess.Popen[bytes]") -> None:
    """Let a server end, and all that it has started; none may disturb who comes next."""
    server.terminate()
    with suppress(subprocess.TimeoutExpired):
        server.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)  # the group is the server's own
    server.wait()


def read_pace(port: int) -> str:
    """How Seqloom's server has chosen to compute."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
        said = json.load(answer)
    return "1 process" if said["workers"] == 1 else f"{said['workers']} workers"


def ask_engine(task: str, folder: Path) -> dict[str, Any]:
    """The engine's own pace, and answers of it."""
    command = [sys.executable, str(HERE / "serve_peers.py"), "engine", task, str(folder), "--rounds", "1"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def ask_once(port: int, path: str, template: dict[str, Any], texts: list[str]) -> list[Any]:
    """The answers to some texts; the first one may have to wait until the server is ready."""
    given = {"port": port, "path": path, "template": template, "texts": texts}
    done = subprocess.run(
        [sys.executable, str(HERE / "serve_load.py")],
        input=json.dumps(given),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_PATIENCE,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def measure(
    servers: Sequence[Server], path: str, template: dict[str, Any], clients: int, warm: float, seconds: float
) -> dict[str, Any]:
    """What the load finds, and the CPU of the servers in its window: of who answers, of the rest, and of others."""
    given = {"ports": [one.port for one in servers], "path": path, "template": template, "clients": clients}
    said: list[dict[str, Any]] = []
    used: list[Cpu] = []
    command = [sys.executable, str(HERE / "serve_load.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loading:
        assert loading.stdin is not None
        assert loading.stdout is not None
        loading.stdin.write(json.dumps({**given, "warm": warm, "seconds": seconds}))
        loading.stdin.close()
        for line in loading.stdout:  # a line where the window begins, one where it ends, and what was found
            used.append(measure_cpu(servers))
            said.append(json.loads(line))
    if loading.returncode or len(said) != 3:
        raise SystemExit("the load has failed; what it said is above")
    begin, after, found = used[0], used[1], said[2]
    seconds = found["seconds"]
    answers = found["rate"] * seconds
    servers_cpu = after.front - begin.front + after.others - begin.others
    machine = (after.machine - begin.machine) / seconds
    foreign = max(0.0, machine - servers_cpu / seconds - found["load"]) / (os.cpu_count() or 1)
    return {
        **found,
        "front": (after.front - begin.front) / answers,
        "others": (after.others - begin.others) / answers,
        "foreign": foreign,
    }


def measure_cpu(servers: Sequence[Server]) -> Cpu:
    """What was used so far."""
    front = sum(read_cpu(one.pid) for one in servers)
    others = sum(read_cpu(child) for one in servers for child in list_descendants(one.pid))
    return Cpu(front, others, measure_machine())


def read_cpu(process: int) -> float:
    """Seconds of CPU that a process has used."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def list_descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = [int(one) for one in file.read_text().split()]
        except OSError:  # the thread has ended
            continue
        found += [one for child in children for one in (child, *list_descendants(child))]
    return found
