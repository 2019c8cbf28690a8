"""Between main memory and another device, where waiting is what costs.

A GPU does its work from a queue, and the program runs ahead of it. It has to wait until the queue is empty whenever it
reads a number from there, and when it copies something there from ordinary memory. So lengths, places and counts are
found in main memory, before a batch is sent; what is sent is pinned, so that the copy is queued like any other work;
and what must be read is read at once. In main memory, none of this does anything.
"""

from typing import Any

import torch
from torch import Tensor


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; on its way there, nothing waits."""
    if device.type == "cpu" or not tensor.is_cpu:
        return tensor.to(device)
    if device.type in ("mps", "meta"):  # which have no memory of their own
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def read(*tensors: Tensor) -> list[Any]:
    """What `tolist` gives of each; for all of them together, a device is waited for once."""
    far = [tensor for tensor in tensors if not tensor.is_cpu]
    if not far:
        return [tensor.tolist() for tensor in tensors]
    rows = [tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in far]
    parts = iter(torch.cat(rows).cpu().split([len(row) for row in rows]))
    near = (
        # A copy of each part begins where its numbers may begin.
        tensor if tensor.is_cpu else next(parts).clone().view(tensor.dtype).view(tensor.shape)
        for tensor in tensors
    )
    return [tensor.tolist() for tensor in near]


def take_over(device: torch.device) -> None:
    """Make a GPU the one that this process uses wherever none is named, as communication between processes does."""
    if device.index is not None:
        torch.get_device_module(device).set_device(device)


def choose_precise(device: torch.device) -> torch.dtype:
    """The type to compute in where rounding matters: float64 in main memory; elsewhere it is slow, or not there."""
    return torch.float64 if device.type == "cpu" else torch.float32
