"""Whether a copy of a network does all that the network does, and nothing it does can change unseen.

That is known of the classes named here, our own and some of torch's, exactly these and as they were written: nothing is
hooked to an instance, none has a `forward` of its own, all its options are plain values, and its numbers lie in its
parameters and buffers. Any other network answers for itself.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from seqloom.native.library import HOOKS, has_global_hooks

_ROOMS = ("nn", "encoders", "decoders", "models")
_OF_TORCH = (
    *(nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Identity, nn.Embedding, nn.Sequential),
    *(nn.RNN, nn.GRU, nn.LSTM),
)
_TABLES = frozenset(nn.Module().__dict__)
_OF_RECURRENCE = frozenset({"_flat_weights", "_flat_weights_names", "_flat_weight_refs", "_all_weights"})
_FORWARDS: dict[type[nn.Module], Callable[..., Any]] = {kind: kind.forward for kind in _OF_TORCH}
"""What calling a class does, as far as it has been met."""


def is_faithful(network: nn.Module) -> bool:
    """Whether a copy answers as the network does, until a snapshot says that it has changed."""
    modules = list(network.modules())
    buffers = [buffer for module in modules for buffer in module._buffers.values() if buffer is not None]
    return (
        not is_disturbed()
        and all(map(_is_known, modules))
        and all(type(one) is nn.Parameter and one.dtype is torch.float32 for one in network.parameters())
        and all(one.layout is torch.strided and one.is_cpu for one in (*network.parameters(), *buffers))
    )


def is_disturbed() -> bool:
    """Whether torch runs something around every module's call, or a class that was met was changed since."""
    return has_global_hooks() or any(kind.forward is not forward for kind, forward in _FORWARDS.items())


def _is_known(module: nn.Module) -> bool:
    kind, own = type(module), module.__dict__
    room = kind.__module__.split(".")
    if kind not in _OF_TORCH and not (room[0] == "seqloom" and room[1] in _ROOMS):
        return False
    return (
        _FORWARDS.setdefault(kind, kind.forward) is kind.forward
        and "forward" not in own
        and not any(own[name] for name in HOOKS)
        and all(name in _TABLES or _is_value(value) or _is_internal(module, name) for name, value in own.items())
    )


def _is_value(value: Any) -> bool:
    """Whether it is a value that cannot change: another one would have to take its place."""
    return isinstance(value, bool | int | float | str | range | None) or (
        isinstance(value, tuple) and all(map(_is_value, value))
    )


def _is_internal(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.RNNBase) and name in _OF_RECURRENCE
