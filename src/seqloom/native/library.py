"""Finding the kernels: one library, built with the package, which holds them once for every level of instructions.

Nothing is compiled or searched for here. Where the library cannot be used, PyTorch computes what it would have, the
numbers are the same up to rounding, and `describe` says why. Kernels use the threads of PyTorch, as many as it does:
its OpenMP is what their calls find, so no second crowd of threads waits beside it.
"""

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from seqloom.errors import ConfigError
from seqloom.native.structures import Kernels, find_mismatch

_VARIABLE = "SEQLOOM_KERNELS"
_FOLDER = Path(__file__).parent


class KernelInfo(NamedTuple):
    """Which kernels are used, and why."""

    level: str | None
    """None: PyTorch computes everything."""
    reason: str
    """One sentence, in either case."""
    levels: tuple[str, ...]
    """What was built, the plainest first."""
    threading: str
    """How many threads the kernels use, and whose."""


class _Found(NamedTuple):
    kernels: Kernels | None
    info: KernelInfo


class _State:
    found: _Found | None = None
    forked = False


def describe() -> KernelInfo:
    """Which kernels are used, and why."""
    return _find().info


def find_kernels() -> Kernels:
    """The kernels in use; an error where there are none, which `serves` would have said."""
    found = _State.found or _find()
    if found.kernels is None:
        raise RuntimeError(f"kernels were asked for, but there are none: {found.info.reason}")
    return found.kernels


def threads() -> int:
    """Threads of a kernel: as many as PyTorch's; one in a forked child, where the parent's threads do not exist."""
    kernels = find_kernels()
    return torch.get_num_threads() if kernels.threaded and not _State.forked else 1


_keys, _float32 = torch._C._dispatch_keys, torch.float32
_count_dispatch_modes, _count_function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_has_transforms, _is_tracing = torch._C._are_functorch_transforms_active, torch._C._get_tracing_state
_is_autocast, _forward_mode = torch._C._is_any_autocast_enabled, torch.autograd.forward_ad
_PLAIN = frozenset({Tensor, nn.Parameter})


def _find_plain_keys() -> frozenset[int]:
    """How PyTorch marks an ordinary tensor: no wrapper, no pending negation, nothing that has no memory."""
    with torch.inference_mode():
        within = torch.empty(0, device="cpu")
    return frozenset(_keys(tensor).raw_repr() for tensor in (torch.empty(0, device="cpu"), within))


_PLAIN_KEYS = _find_plain_keys()


def serves(*tensors: Tensor | None) -> bool:
    """Whether kernels may compute with these: ordinary tensors of float32 in memory, and nobody who watches.

    Whoever looks at operations, rewrites or records them (modes, functorch, autocast, tracing, compiling, forward-mode
    differentiation) gets PyTorch's.
    """
    if torch.compiler.is_compiling() or (_State.found or _find()).kernels is None:
        return False
    for tensor in tensors:
        if tensor is not None and (
            type(tensor) not in _PLAIN or tensor.dtype is not _float32 or _keys(tensor).raw_repr() not in _PLAIN_KEYS
        ):
            return False
    return not (
        _count_dispatch_modes()
        or _count_function_modes()
        or _has_transforms()
        or _is_autocast()
        or _is_tracing()
        or _forward_mode._current_level >= 0
    )


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_FORWARDS: dict[type[nn.Module], Callable[..., Any]] = {nn.Linear: nn.Linear.forward}
"""What calling a class did when it was first met."""


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether calling a module runs `kind.forward` and nothing else, so that a fast path may take its weights instead.

    It is not plain if it is of a subclass, has a `forward` of its own, a hook or a parametrisation.
    """
    own = module.__dict__
    plain = type(module) is kind and "forward" not in own and not any(own[name] for name in HOOKS)
    return plain and _FORWARDS.setdefault(kind, kind.forward) is kind.forward and not has_global_hooks()


def has_global_hooks() -> bool:
    """Whether torch runs something around every module's call."""
    return bool(_has_any_global_hook())


def _find() -> _Found:
    if _State.found is None:
        _State.found = choose(os.environ.get(_VARIABLE))
    return _State.found


def choose(wanted: str | None) -> "_Found":
    """The kernels of a level, the highest that this processor has, or none."""
    library, fault = _load()
    levels = () if library is None else tuple(library.seqloom_levels().decode().split())
    if wanted == "none":
        return _Found(None, _tell_none(f"{_VARIABLE}=none asks for it", levels))
    usable = [] if library is None else [level for level in levels if library.seqloom_supports(level.encode())]
    if wanted:
        if library is None or wanted not in usable:
            what = "was built, but this processor cannot run it" if wanted in levels else "is not there"
            there = ", ".join([*usable, "none"])
            raise ConfigError(f"{_VARIABLE}={wanted}: this level of kernels {what}; there is: {there}")
        return _use(library, wanted, levels, f"{_VARIABLE} asks for it")
    if library is None:
        return _Found(None, _tell_none(fault, levels))
    if not usable:
        lacking = f"the plainest level that was built is {levels[0]}, which this processor cannot run"
        return _Found(None, _tell_none(lacking, levels))
    return _use(library, usable[-1], levels, "it is the highest level that both this processor and this build have")


def _use(library: ctypes.CDLL, level: str, levels: tuple[str, ...], reason: str) -> _Found:
    kernels = Kernels(library, level)
    threading = "PyTorch's threads, as many as it uses"
    if not kernels.threaded:
        threading = "one thread, because the compiler of this build cannot use PyTorch's threads"
    return _Found(kernels, KernelInfo(level, f"The kernels of level {level} are used: {reason}.", levels, threading))


def _tell_none(reason: str, levels: tuple[str, ...]) -> KernelInfo:
    return KernelInfo(None, f"PyTorch computes everything: {reason}.", levels, "PyTorch's own")


def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library, or why there is none."""
    path = _FOLDER / "libseqloom_kernels.so"
    if not path.exists():
        return None, _read_reason()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"the library of kernels cannot be loaded ({str(error).removeprefix(f'{path}: ')})"
    mismatch = find_mismatch(library)
    if mismatch is not None:
        return None, f"the library of kernels was built from other sources than the package ({mismatch})"
    return library, ""


def _read_reason() -> str:
    """Why the build made no library."""
    try:
        reason = json.loads((_FOLDER / "build.json").read_text(encoding="utf-8"))["reason"]
    except (OSError, ValueError, KeyError):
        reason = ""
    return str(reason) or "the library of kernels is missing; install the package again (pip install .)"


def _note_fork() -> None:
    _State.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
