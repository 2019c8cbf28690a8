"""Several processes that train one model: who they are, how they add up, and who holds which part of the weights.

Every rank has its part of each batch, and all take the same step. Besides gradients they exchange a few numbers a step:
losses, counts, the main process's clock, whether somebody was asked to stop. Only the main process (rank 0) writes.

sharding = "none"    every rank holds all weights; gradients are summed while they are computed (Li et al. 2020,
                     PyTorch's DistributedDataParallel)
sharding = "full"    every rank holds its shard of every weight, gradient and moment; a layer is gathered when it is
                     needed (Zhao et al. 2023, FSDP; Rajbhandari et al. 2020, ZeRO stage 3)

Checkpoints hold whole tensors either way, so a run may change both its ranks and its sharding. What only several
processes need is imported where they need it: it takes long, and most trainings are of one process.
"""

import logging
import os
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from seqloom.errors import RunError
from seqloom.nn.transformer import Stack

R = TypeVar("R")
_PATIENCE = timedelta(hours=2)  # for a rank that is alive; one that dies is noticed at once
_PAUSE = 0.01  # seconds between two queries of the store
_RESTARTS = 3


@dataclass(frozen=True)
class ProcessGroup:
    """Who this process is among all; by default, the only one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Among those of this machine."""
    local_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def add(self, *numbers: float) -> list[float]:
        """Each number, summed over all ranks."""
        if self.size == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(sums)
        return sums.tolist()

    def gather(self, value: R) -> list[R]:
        """Everybody's value, in the order of ranks. Every rank must ask."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_main(self, *numbers: float) -> list[float]:
        """The main process's numbers."""
        return self.add(*(number if self.is_main else 0.0 for number in numbers))

    def main_first(self, work: Callable[[], R]) -> R:
        """Let the main process work first and the others find its files; where it fails, all stop."""
        if not self.is_main:
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
    """A name for this start of the group, the same on every rank.

    torchrun keeps one store through all its restarts, and a rank that reads there where another listens may read of one
    that was killed. So each asks under a name nobody had before, only a living main process answers, and it goes
    on answering until all have confirmed.
    """
    name = uuid.uuid4().hex
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
def join_process_group() -> Iterator[ProcessGroup]:
    """The group that torchrun started this process in; otherwise this process alone."""
    places = [int(os.environ.get(name, "-1")) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
    if min(places) < 0 or places[1] == 1:
        yield ProcessGroup()
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, size = next(rendezvous("env://", timeout=_PATIENCE))
        store = PrefixStore(meet(store, rank, size), store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
        yield ProcessGroup(*places)
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


def spread(module: nn.Module, group: ProcessGroup, sharding: Literal["none", "full"]) -> nn.Module:
    """The module to call in training, whose gradients are then means over all ranks."""
    if group.size == 1:  # one process holds everything, whatever the sharding
        return module
    device = next(module.parameters()).device
    if sharding == "full":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (group.size,))
        stacks = [part for part in module.modules() if isinstance(part, Stack)]
        layers = [layer for stack in stacks for layer in stack if not isinstance(layer, Stack)]
        pieces = [fully_shard(part, mesh=mesh) for part in (*layers, module)]
        # By default a layer's predecessor is looked up in the order of the last forward pass, and ranks that judge
        # different validation batches would disagree about it and wait for each other for ever.
        for piece, before in zip(pieces, (pieces[-1], *pieces[:-1]), strict=True):
            piece.set_modules_to_backward_prefetch([before])
        return module
    # Buckets of gradients that are rearranged after the first step would sum in another order after a restart; with
    # `find_unused_parameters` they never are, so that resuming stays exact.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a new name for the last option, which older versions lack
        return DistributedDataParallel(module, find_unused_parameters=True, broadcast_buffers=False)


def defer_sum(module: nn.Module, defer: bool) -> AbstractContextManager[None]:
    """Within it, gradients of whole weights only add up on this rank; pieces are always summed, to stay small."""
    return module.no_sync() if defer and isinstance(module, DistributedDataParallel) else nullcontext()


def gather(tensor: Tensor) -> Tensor:
    """The whole of a tensor. Every rank must ask."""
    return tensor.full_tensor() if is_shard(tensor) else tensor  # type: ignore[attr-defined]


def is_shard(tensor: Tensor) -> bool:
    """Whether other ranks hold the rest of a tensor."""
    return hasattr(tensor, "full_tensor")


def cut_like(tensor: Tensor, other: Tensor) -> Tensor:
    """The piece of a whole tensor that is this rank's, cut as `other` is."""
    if is_shard(tensor) or not is_shard(other):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)


def collect(tensors: Iterable[tuple[str, Tensor]], group: ProcessGroup) -> dict[str, Tensor]:
    """Whole tensors by name, in the main process's memory; none elsewhere. Every rank must ask."""
    collected = {}
    for name, tensor in tensors:
        whole = gather(tensor.detach())
        if group.is_main:
            collected[name] = whole.cpu().contiguous()
    return collected


@contextmanager
def unsharded(module: nn.Module) -> Iterator[None]:
    """Within it every rank holds all weights and may call any method, without the others."""
    if not any(map(is_shard, module.parameters())):
        yield
        return
    from torch.distributed.fsdp import FSDPModule

    pieces = [part for part in module.modules() if isinstance(part, FSDPModule)]
    for piece in pieces:
        piece.set_reshard_after_forward(False)
        piece.unshard()
    try:
        yield
    finally:
        for piece in pieces:
            piece.reshard()
            piece.set_reshard_after_forward(piece is not pieces[0])


def launch(arguments: Sequence[str], processes: int, say: Callable[[str], None]) -> int:
    """Run `seqloom ARGUMENTS` in each of the processes of this machine, as torchrun does; returns the exit code.

    A rank that is killed takes the others with it, and all start again from the last checkpoint. A rank that ends with
    an error has printed why; starting again would not help.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        run_id=uuid.uuid4().hex,
    )
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what matters is printed below
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # each rank would warn of what was chosen on purpose
    for attempt in range(1 + _RESTARTS):
        try:
            elastic_launch(config, sys.executable)("-m", "seqloom", *arguments)
            return 0
        except SignalException as stopped:
            return 128 + stopped.sigval
        except ChildFailedError as failed:
            # The neighbour of a killed rank ends with an error so soon that both may be found at once.
            rank, failure = min(failed.failures.items(), key=lambda found: (found[1].exitcode >= 0, found[1].timestamp))
            if failure.exitcode >= 0:
                return failure.exitcode
            if attempt < _RESTARTS:
                say(f"rank {rank} was killed by signal {-failure.exitcode}; all start again from the last checkpoint")
    say(f"a rank was killed {1 + _RESTARTS} times; the same command tries again")
    return 1
