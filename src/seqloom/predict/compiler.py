"""Compiling a network: when a copy may answer for it, and whether it still does.

The network is an ordinary module, and the truth. A compiled copy is derived from it and never changes. When the network
changes in any way, a new copy is made. When the network does something that a copy might not do in the same way, such
as calling a hook, the network itself answers.
"""

import copy
import threading
import warnings
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from seqloom.errors import ConfigError, RunError
from seqloom.native.library import HOOKS, checksum, describe, serves
from seqloom.predict.compiled import find_obstacle, is_served, pack_weights
from seqloom.predict.search import EngineName, Precision

_ROOMS = ("nn", "encoders", "decoders", "models")
_OF_TORCH = (
    *(nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Identity, nn.Embedding, nn.Sequential),
    *(nn.RNN, nn.GRU, nn.LSTM),
)
_TABLES = frozenset(nn.Module().__dict__)
_OF_RECURRENCE = frozenset({"_flat_weights", "_flat_weights_names", "_flat_weight_refs", "_all_weights"})
_FORWARDS: dict[type[nn.Module], Callable[..., Any]] = {kind: kind.forward for kind in _OF_TORCH}
"""The `forward` of each class when it was first seen."""


class Compiler:
    """Gives the fastest module that computes what a network computes."""

    def __init__(
        self, network: nn.Module, *, private: bool = False, enabled: bool = True, precision: Precision = "float32"
    ) -> None:
        self.network, self.enabled, self.precision = network, enabled, precision
        self.private = private
        """Whether nobody else can change the network, so that it need not be checked again."""
        self._lock = threading.Lock()
        self._made: tuple[Snapshot | None, nn.Module] | None = None

    def __getstate__(self) -> dict[str, Any]:
        own = ("network", "private", "enabled", "precision")  # nobody else holds the network that is made of this
        return {name: getattr(self, name) for name in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def move_to(self, network: nn.Module) -> "Compiler":
        """The same for another network, or for one that somebody else may change."""
        return Compiler(network, enabled=self.enabled, precision=self.precision)

    def get(self) -> nn.Module:
        """The compiled copy of the network as it is now, or the network itself."""
        if not self.enabled or is_patched() or not serves():
            self._refuse_random()
            return self._fall_back("a hook of torch's runs around every module, or its operations are watched")
        with self._lock:
            if self._made is not None and (self.private or (self._made[0] is not None and self._made[0].holds())):
                return self._made[1]
            self._refuse_random()
            self._made = None
            if not (self.private or can_copy(self.network)):
                return self._fall_back("it is not of float32, hooks are on it, or a part is not Seqloom's own")
            if self.precision != "float32" and (obstacle := find_obstacle(self.network)):
                return self._fall_back(obstacle)
            compiled = compile_network(self.network, self.precision)
            if compiled is self.network and self.precision != "float32":
                return self._fall_back("it is not of float32")
            self._made = None if self.private else Snapshot(self.network), compiled
            return compiled

    def _fall_back(self, reason: str) -> nn.Module:
        """The network itself, in float32; a warning says so if another precision was asked for."""
        if self.precision != "float32":
            warnings.warn(
                f"{self.precision} cannot compute the network as it is now ({reason}); it computes itself, in float32",
                stacklevel=2,
            )
        return self.network

    def _refuse_random(self) -> None:
        if not self.private and any(map(_is_random, self.network.modules())):
            raise RunError(
                "the network is in training mode, in which dropout makes its answers random; call "
                "model.network.eval() first"
            )

    def freeze(self) -> nn.Module:
        """Like `get`, but later changes of the network do not affect it; its hooks are those of the network.

        A `forward` set on an instance may still use the original network.
        """
        found = self.get()
        if found is not self.network:
            return found
        hooks = [hook for module in found.modules() for name in HOOKS for hook in module.__dict__[name].values()]
        return copy.deepcopy(found, {id(hook): hook for hook in hooks})


def compile_network(network: nn.Module, precision: Precision = "float32") -> nn.Module:
    """A copy of a network with its weights packed for the kernels; the network itself if no kernel serves it.

    In bfloat16 or int8, only networks that `check_precision` accepts are served.
    """
    if can_copy(network) and serves(*network.parameters()):
        served = find_obstacle(network) is None if precision != "float32" else any(map(is_served, network.modules()))
        if served:
            return pack_weights(copy.deepcopy(network).requires_grad_(False), precision)
    return network


def check_precision(network: nn.Module, engine: EngineName, precision: Precision) -> None:
    """Refuse a precision in which a network cannot compute."""
    if precision == "float32":
        return
    asked = f'precision = "{precision}"'
    if engine != "compiled":
        more = '; engine = "ctranslate2-int8" is CTranslate2 in int8' if engine == "ctranslate2" else ""
        raise ConfigError(f"{asked}: only the engine compiled has it, not {engine}{more}; leave one of them out")
    if (about := describe()).level is None:
        raise ConfigError(f"{asked}: is computed by the kernels, and there are none. {about.reason}")
    if any(not parameter.is_cpu for parameter in network.parameters()):
        raise ConfigError(f"{asked}: is computed on the CPU only; leave it or the device out")
    foreign = None if can_copy(network) else "a part is not Seqloom's own, or is not of float32"
    if obstacle := find_obstacle(network) or foreign:
        what = "Transformers without windows, with absolute or rotary positions or none"
        raise ConfigError(f"{asked}: is for {what}, and of this model {obstacle}; leave it out")


def _is_random(module: nn.Module) -> bool:
    """Whether a module applies dropout."""
    rates = [module.__dict__.get(name) for name in ("p", "dropout", "word_dropout")]
    return module.training and any(isinstance(rate, float | int) and rate > 0 for rate in rates)


def can_copy(network: nn.Module) -> bool:
    """Whether a copy gives the same answers as the network, until a snapshot shows that the network has changed.

    That is known of our own classes and some of torch's, as they were written: no instance has hooks or a `forward` of
    its own, all its options are plain values, and its numbers are in its parameters and buffers. Any other network
    answers for itself.
    """
    modules = list(network.modules())
    buffers = [buffer for module in modules for buffer in module._buffers.values() if buffer is not None]
    return (
        not is_patched()
        and all(map(_is_known, modules))
        and all(type(one) is nn.Parameter and one.dtype is torch.float32 for one in network.parameters())
        and all(one.layout is torch.strided and one.is_cpu for one in (*network.parameters(), *buffers))
    )


def is_patched() -> bool:
    """Whether there are global hooks, or a class has a new `forward` since it was first seen."""
    return bool(_has_any_global_hook()) or any(kind.forward is not forward for kind, forward in _FORWARDS.items())


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
    """Whether it is an immutable value, which can only be replaced."""
    return isinstance(value, bool | int | float | str | range | None) or (
        isinstance(value, tuple) and all(map(_is_value, value))
    )


def _is_internal(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.RNNBase) and name in _OF_RECURRENCE


class Snapshot:
    """A network as it is now, to find out later whether it has changed.

    It holds all that answers could depend on: the modules, their classes, options, hooks and own `forward`s, and their
    parameters and buffers: which tensors they are, their place and layout in memory, and their numbers. torch counts
    the changes of a tensor, but not those made through `.data` or a numpy view; the checksum shows these.
    """

    def __init__(self, network: nn.Module) -> None:
        modules = list(network.modules())
        self._kinds = [(module, type(module)) for module in modules]
        tables: list[Mapping[Any, Any]] = [module.__dict__ for module in modules]
        tables += [value for table in tables for value in table.values() if isinstance(value, dict)]
        self._empty = [table for table in tables if not table]  # most are: places for hooks
        self._tables = [(table, tuple(table), tuple(table.values())) for table in tables if table]
        self._tensors = [(tensor, _describe(tensor)) for tensor in (*network.parameters(), *network.buffers())]
        self._checksum = checksum(tensor for tensor, _ in self._tensors)

    def holds(self) -> bool:
        """Whether the network is still the same."""
        return (
            not any(self._empty)
            and all(type(module) is kind for module, kind in self._kinds)
            and all(_is_same(*table) for table in self._tables)
            and all(_describe(tensor) == described for tensor, described in self._tensors)
            and checksum(tensor for tensor, _ in self._tensors) == self._checksum
        )


def _is_same(table: Mapping[Any, Any], keys: tuple[Any, ...], values: tuple[Any, ...]) -> bool:
    return len(table) == len(keys) and tuple(table) == keys and all(map(is_, table.values(), values))


def _describe(tensor: Tensor) -> tuple[Any, ...]:
    version = -1 if tensor.is_inference() else tensor._version
    if tensor.layout is not torch.strided:
        return version, tensor.dtype, tensor.device, tensor.shape
    return version, tensor.data_ptr(), tensor.dtype, tensor.device, tensor.shape, tensor.stride()
