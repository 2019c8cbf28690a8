"""A record of a network, to tell later whether it has changed.

A copy of a network answers for it only while nothing has changed that its answers could depend on: which modules it is
made of, their classes, options, hooks and own `forward`s, and their parameters and buffers: which tensors they are,
where and how they lie in memory, and their numbers. torch counts the changes of a tensor, but not those made through
`.data` or a numpy view: those show in a checksum of all numbers.
"""

from collections.abc import Iterable, Mapping
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from seqloom import native


class Snapshot:
    """A network as it is now."""

    def __init__(self, network: nn.Module) -> None:
        modules = list(network.modules())
        self._kinds = [(module, type(module)) for module in modules]
        tables: list[Mapping[Any, Any]] = [module.__dict__ for module in modules]
        tables += [value for table in tables for value in table.values() if isinstance(value, dict)]
        self._empty = [table for table in tables if not table]  # most are: places for hooks
        self._tables = [(table, tuple(table), tuple(table.values())) for table in tables if table]
        tensors = _list_tensors(modules)
        self._tensors = [(tensor, _describe(tensor)) for tensor in tensors]
        self._checksum = native.checksum(tensors)

    def holds(self) -> bool:
        """Whether the network is the same still."""
        return (
            not any(self._empty)
            and all(type(module) is kind for module, kind in self._kinds)
            and all(_is_same(*table) for table in self._tables)
            and all(_describe(tensor) == described for tensor, described in self._tensors)
            and native.checksum(tensor for tensor, _ in self._tensors) == self._checksum
        )


def _list_tensors(modules: Iterable[nn.Module]) -> list[Tensor]:
    found = {
        id(tensor): tensor
        for module in modules
        for table in (module._parameters, module._buffers)
        for tensor in table.values()
        if tensor is not None
    }
    return list(found.values())


def _is_same(table: Mapping[Any, Any], keys: tuple[Any, ...], values: tuple[Any, ...]) -> bool:
    return len(table) == len(keys) and tuple(table) == keys and all(map(is_, table.values(), values))


def _describe(tensor: Tensor) -> tuple[Any, ...]:
    version = -1 if tensor.is_inference() else tensor._version
    if tensor.layout is not torch.strided:
        return version, tensor.dtype, tensor.device, tensor.shape
    return version, tensor.data_ptr(), tensor.dtype, tensor.device, tensor.shape, tensor.stride()
