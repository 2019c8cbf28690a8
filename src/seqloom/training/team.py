"""The processes that train one model together.

Every rank has its part of each batch, and all take the same step. What they tell each other beside gradients are a few
numbers a step: losses, counts, the lead's clock, whether somebody was asked to stop. Only the lead (rank 0) writes.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from seqloom.errors import RunError

R = TypeVar("R")
_PATIENCE = timedelta(hours=2)  # for a rank that is alive; one that dies is noticed at once
_PAUSE = 0.01  # seconds between two looks into the store


@dataclass(frozen=True)
class Team:
    """Who this process is among all; by default, all there is."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Among those of this machine."""
    local_size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this rank is the one that writes and speaks."""
        return self.rank == 0

    def add(self, *numbers: float) -> list[float]:
        """Each number, summed over all ranks."""
        if self.size == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(sums)
        return sums.tolist()

    def ask_lead(self, *numbers: float) -> list[float]:
        """The lead's numbers."""
        return self.add(*(number if self.leads else 0.0 for number in numbers))

    def follow(self, work: Callable[[], R]) -> R:
        """Let the lead work first and the others find its files; where it fails, all stop."""
        if not self.leads:
            if not self.add(0.0)[0]:
                raise RunError("stopped, because rank 0 did")
            return work()
        done = 0.0
        try:
            result = work()
            done = 1.0
        finally:
            self.add(done)
        return result


def meet(store: Store, rank: int, size: int) -> str:
    """A name for this start of the team, the same on every rank.

    torchrun keeps one store through all its restarts, and a rank that reads there where another listens may read of one
    that was killed. So each asks under a name nobody had before, only a living lead answers, and the lead goes on
    answering until everybody has said that they heard it.
    """
    name = uuid4().hex
    if rank > 0:
        store.set(f"asks/{rank}", name)
        _wait_until(lambda: store.check([f"answer/{name}"]), "rank 0")
        name = store.get(f"answer/{name}").decode()
        store.set(f"{name}/heard/{rank}", "")
        return name
    for other in range(1, size):

        def answer(other: int = other) -> bool:
            if store.check([f"asks/{other}"]):
                store.set(f"answer/{store.get(f'asks/{other}').decode()}", name)
            return store.check([f"{name}/heard/{other}"])

        _wait_until(answer, f"rank {other}")
    return name


def _wait_until(ready: Callable[[], bool], whom: str) -> None:
    end = time.monotonic() + _PATIENCE.total_seconds()
    while not ready():
        if time.monotonic() > end:
            raise RunError(f"{whom} did not come within {_PATIENCE}")
        time.sleep(_PAUSE)


@contextmanager
def join_team() -> Iterator[Team]:
    """The team that torchrun started this process in; otherwise a team of one."""
    places = [int(os.environ.get(name, "-1")) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
    if min(places) < 0 or places[1] == 1:
        yield Team()
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, size = next(rendezvous("env://", timeout=_PATIENCE))
        store = PrefixStore(meet(store, rank, size), store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
        yield Team(*places)
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise RunError(
            f"rank {places[0]} cannot reach another rank, which may have ended ({str(error).splitlines()[0]}). "
            "On several machines, GLOO_SOCKET_IFNAME names the network card to use"
        ) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
