"""Several processes that train one model, forked from the test so that they start at once."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import torch._dynamo
import torch.distributed.fsdp  # noqa: F401 - both take seconds to import, which every forked process would spend
from rich.console import Console

from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor


class Deadly(PlainMonitor):
    """Says nothing, unless it has a console; pulls the plug of its process after a step."""

    def __init__(self, kill_at: int, console: Console | None) -> None:
        super().__init__(console or Console(quiet=True))
        self._kill_at = kill_at

    def step(self, progress, outcome, spent) -> None:
        if progress.step == self._kill_at:
            os.kill(os.getpid(), 9)


def train_together(
    path: Path,
    out: Path,
    overrides: Sequence[str] = (),
    size: int = 2,
    kill_at: int = -1,
    console: Console | None = None,
) -> list[int]:
    """Train with `size` ranks, of which the lead may be killed; returns the exit code of each, negative for signals."""
    port = free_port()
    watches = [Deadly(kill_at, console) for _ in range(size)]
    children = [_fork(path, out, overrides, rank, port, watches) for rank in range(size)]
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _fork(path: Path, out: Path, overrides: Sequence[str], rank: int, port: int, watches: Sequence[Deadly]) -> int:
    child = os.fork()
    if child:
        return child
    code, size = 1, len(watches)
    try:
        place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
        os.environ |= {name: str(value) for name, value in place.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        train(path, overrides, out=out, monitor=watches[rank])
        code = 0
    except Exception as error:
        print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)
