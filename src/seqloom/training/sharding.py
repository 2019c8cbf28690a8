"""One model on several processes: whole on each of them, or a piece on each.

none    every rank holds all weights; gradients are summed while they are computed (Li et al. 2020, PyTorch's
        DistributedDataParallel)
full    every rank holds its piece of every weight, gradient and moment; a layer is put together when it is needed
        (Zhao et al. 2023, FSDP; Rajbhandari et al. 2020, ZeRO stage 3)

Checkpoints hold whole tensors, whichever it was, so a run may change both its ranks and its sharding. What only several
processes need is imported where they need it: it takes long, and most trainings are of one.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seqloom.nn.transformer import Stack
from seqloom.training.team import Team


def spread(module: nn.Module, team: Team, sharding: Literal["none", "full"]) -> nn.Module:
    """The module to call in training, whose gradients are then means over all ranks."""
    device = next(module.parameters()).device
    if sharding == "full":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (team.size,))
        stacks = [part for part in module.modules() if isinstance(part, Stack)]
        layers = [layer for stack in stacks for layer in stack if not isinstance(layer, Stack)]
        pieces = [fully_shard(part, mesh=mesh) for part in (*layers, module)]
        # By default a layer's predecessor is looked up in the order of the last forward pass, and ranks that judge
        # different validation batches would disagree about it and wait for each other for ever.
        for piece, before in zip(pieces, (pieces[-1], *pieces[:-1]), strict=True):
            piece.set_modules_to_backward_prefetch([before])
        return module
    if team.size == 1:
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
    return tensor.full_tensor() if is_piece(tensor) else tensor  # type: ignore[attr-defined]


def is_piece(tensor: Tensor) -> bool:
    """Whether other ranks hold the rest of a tensor."""
    return hasattr(tensor, "full_tensor")


def cut_like(tensor: Tensor, other: Tensor) -> Tensor:
    """The piece of a whole tensor that is this rank's, cut as `other` is."""
    if is_piece(tensor) or not is_piece(other):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)


def collect(tensors: Iterable[tuple[str, Tensor]], team: Team) -> dict[str, Tensor]:
    """Whole tensors by name, in the lead's memory; none elsewhere. Every rank must ask."""
    collected = {}
    for name, tensor in tensors:
        whole = gather(tensor.detach())
        if team.leads:
            collected[name] = whole.cpu().contiguous()
    return collected


@contextmanager
def put_together(module: nn.Module) -> Iterator[None]:
    """Within it every rank holds all weights and may call any method, without the others."""
    if not any(map(is_piece, module.parameters())):
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
