"""The library of kernels, built with the package: it holds them once for every level of instructions.

Nothing is compiled or searched for here. Where the library cannot be used, PyTorch computes instead, the numbers are
the same up to rounding, and `describe` says why. Kernels use the threads of PyTorch, as many as it does: its OpenMP is
what their calls find, so no second set of threads waits beside it.

The kernels of rows are called here; those of attention and of Transformer blocks, in files of their own.
"""

import ctypes
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from seqloom.errors import ConfigError
from seqloom.native.structures import ACTIVATIONS, PRECISIONS, Kernels, Norm, check, find_mismatch

_VARIABLE = "SEQLOOM_KERNELS"
_FOLDER = Path(__file__).parent
BFLOAT16_LEVEL = "x86-64-v4-bf16"


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
    precisions: dict[str, str]
    """How a model in use computes in each precision that it may have here."""


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


_keys, _FLOAT32, _BOTH = torch._C._dispatch_keys, (torch.float32,), (torch.float32, torch.bfloat16)
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


def serves(*tensors: Tensor | None, mixed: bool = False) -> bool:
    """Whether kernels may compute with these: ordinary tensors of float32 in memory.

    Where operations are watched, rewritten or recorded (modes, functorch, autocast, tracing, compiling, forward-mode
    differentiation), PyTorch computes. But kernels that are `mixed` take and give bfloat16, too, and serve within an
    autocast to it where it is fast; parameters are float32 there, as well.
    """
    if not _may_serve():
        return False
    if _is_autocast():
        return (
            mixed
            and in_bfloat16()
            and all(_is_ordinary(tensor, _FLOAT32 if type(tensor) is nn.Parameter else _BOTH) for tensor in tensors)
        )
    return all(_is_ordinary(tensor, _FLOAT32) for tensor in tensors)


def in_bfloat16() -> bool:
    """Whether products of matrices are computed in bfloat16 here, by a processor that has instructions for it."""
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16 and has_bfloat16()


def has_bfloat16() -> bool:
    """Whether the kernels in use are those for a processor that multiplies numbers of bfloat16."""
    return (_State.found or _find()).info.level == BFLOAT16_LEVEL


def _may_serve() -> bool:
    return not (
        torch.compiler.is_compiling()
        or (_State.found or _find()).kernels is None
        or _count_dispatch_modes()
        or _count_function_modes()
        or _has_transforms()
        or _is_tracing()
        or _forward_mode._current_level >= 0
    )


def _is_ordinary(tensor: Tensor | None, kinds: tuple[torch.dtype, ...]) -> bool:
    return tensor is None or (
        type(tensor) in _PLAIN and tensor.dtype in kinds and _keys(tensor).raw_repr() in _PLAIN_KEYS
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


def choose(wanted: str | None) -> _Found:
    """The kernels of a level, the highest that this processor has, or none."""
    library, fault = _load()
    levels = () if library is None else tuple(library.seqloom_levels().decode().split())
    usable = [] if library is None else [level for level in levels if library.seqloom_supports(level.encode())]
    if wanted and wanted not in (*usable, "none"):
        what = "was built, but this processor cannot run it" if wanted in levels else "is not there"
        raise ConfigError(
            f"{_VARIABLE}={wanted}: this level of kernels {what}; there is: {', '.join([*usable, 'none'])}"
        )
    if library is None or not usable or wanted == "none":
        lacking = fault or f"the plainest level that was built is {levels[0]}, which this processor cannot run"
        reason = f"{_VARIABLE}=none asks for it" if wanted == "none" else lacking
        about = f"PyTorch computes everything: {reason}."
        return _Found(None, KernelInfo(None, about, levels, "PyTorch's own", {"float32": "PyTorch"}))
    level = wanted or usable[-1]
    reason = (
        f"{_VARIABLE} asks for it" if wanted else "it is the highest level that both this processor and this build have"
    )
    kernels, threading = Kernels(library, level), "PyTorch's threads, as many as it uses"
    if not kernels.threaded:
        threading = "one thread, because the compiler of this build cannot use PyTorch's threads"
    about = f"The kernels of level {level} are used: {reason}."
    return _Found(kernels, KernelInfo(level, about, levels, threading, _describe_precisions(level)))


def _describe_precisions(level: str) -> dict[str, str]:
    own, has_vnni = "this level's instructions", level in ("x86-64-v4-vnni", BFLOAT16_LEVEL)
    bfloat16 = "the same sums without an instruction for them: half the memory, and slower than float32"
    int8 = "products of 16 bits: a quarter of the memory, and little faster than float32"
    return {
        "float32": own,
        "bfloat16": f"{own} (BF16)" if level == BFLOAT16_LEVEL else bfloat16,
        "int8": f"{own} (VNNI)" if has_vnni else int8,
    }


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


def find_precision(x: Tensor) -> int:
    """The number by which kernels know the type of these numbers."""
    return PRECISIONS.index(str(x.dtype).removeprefix("torch."))


def activate(h: Tensor, bias: Tensor, kind: str, rate: float, seed: int) -> Tensor:
    """Dropout(f(h + bias)), row by row, of the type of h, which is float32 or bfloat16; the bias is float32."""
    h, bias = h.contiguous(), bias.contiguous()
    out, how = torch.empty_like(h), (bias.data_ptr(), rate, seed)
    kernel, what = find_kernels().activate, (find_precision(h), ACTIVATIONS.index(kind))
    check(kernel(threads(), *what, *h.shape, *how, h.data_ptr(), out.data_ptr()))
    return out


def differentiate_activation_(
    h: Tensor, bias: Tensor, grad: Tensor, kind: str, rate: float, seed: int
) -> tuple[Tensor, Tensor]:
    """What `activate` gave, and the gradient by the bias; `grad`, which is contiguous and of the type of h, becomes the
    gradient by h.
    """
    h, bias = h.contiguous(), bias.contiguous()
    assert grad.is_contiguous()
    assert grad.dtype is h.dtype
    out, bias_grad = torch.empty_like(h), torch.empty_like(bias)
    how, addresses = (bias.data_ptr(), rate, seed), (t.data_ptr() for t in (h, out, grad, bias_grad))
    kernel, what = find_kernels().differentiate_activation, (find_precision(h), ACTIVATIONS.index(kind))
    check(kernel(threads(), *what, *h.shape, *how, *addresses))
    return out, bias_grad


def drop(x: Tensor, rate: float, seed: int) -> Tensor:
    """Dropout: each number is lost with probability `rate` < 1; the others grow."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=torch.float32)
    find_kernels().drop(threads(), x.numel(), rate, seed, x.data_ptr(), out.data_ptr())
    return out


def add_dropped(x: Tensor, y: Tensor, rate: float, seed: int) -> Tensor:
    """x + dropout(y), where x is float32 and y bfloat16."""
    x, y = x.contiguous(), y.contiguous()
    out, addresses = torch.empty_like(x), (x.data_ptr(), y.data_ptr())
    find_kernels().add_dropped(threads(), x.numel(), rate, seed, *addresses, out.data_ptr())
    return out


def drop_short(x: Tensor, rate: float, seed: int) -> Tensor:
    """Dropout of float32, rounded to bfloat16."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=torch.bfloat16)
    find_kernels().drop_short(threads(), x.numel(), rate, seed, x.data_ptr(), out.data_ptr())
    return out


def normalise_rows(x: Tensor, gain: Tensor, shift: Tensor | None, epsilon: float) -> Tensor:
    """LayerNorm of float32, or without a shift RMSNorm, rounded to bfloat16."""
    x, (norm, kept) = x.contiguous(), _describe_norm(gain, shift, epsilon)
    out = torch.empty(x.shape, dtype=torch.bfloat16)
    addresses = (ctypes.addressof(norm), x.data_ptr(), out.data_ptr())
    check(find_kernels().normalise_rows(threads(), *x.shape, *addresses))
    del kept
    return out


def differentiate_norm(
    x: Tensor, gain: Tensor, shift: Tensor | None, epsilon: float, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients by x, gain and shift, in float32, from that by what came out, in bfloat16."""
    x, grad, (norm, kept) = x.contiguous(), grad.contiguous(), _describe_norm(gain, shift, epsilon)
    grads = torch.empty_like(x), torch.empty_like(gain), None if shift is None else torch.empty_like(shift)
    addresses = (None if t is None else t.data_ptr() for t in (x, grad, *grads))
    check(find_kernels().differentiate_norm(threads(), *x.shape, ctypes.addressof(norm), *addresses))
    del kept
    return grads


def _describe_norm(gain: Tensor, shift: Tensor | None, epsilon: float) -> tuple[Norm, list[Tensor | None]]:
    """A norm as kernels read it, and what must live as long."""
    kept = [gain.contiguous(), None if shift is None else shift.contiguous()]
    return Norm(*(None if t is None else t.data_ptr() for t in kept), epsilon), kept


def normalise(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The log Σ exp of each row of contiguous scores, and what no score of a block exceeds."""
    kernels = find_kernels()
    rows, size = scores.shape
    values, bounds = scores.new_empty(rows), scores.new_empty(rows, -(-size // kernels.block))
    kernels.normalise(threads(), rows, size, *(t.data_ptr() for t in (scores, values, bounds)))
    return values, bounds


def find_top(scores: Tensor, count: int, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and where they stand, largest first; `bounds` are used up."""
    rows, size = scores.shape
    values, places = scores.new_empty(rows, count), torch.empty(rows, count, dtype=torch.long)
    addresses = (t.data_ptr() for t in (bounds, values, places))
    find_kernels().find_top(threads(), rows, size, scores.data_ptr(), count, *addresses)
    return values, places


def cross_entropy_(scores: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """The loss of each row; contiguous `scores`, which lack their bias, become the gradient of their sum.

    They are float32 or bfloat16; losses and bias are float32.
    """
    losses, bias, targets = bias.new_empty(len(scores)), bias.contiguous(), targets.long().contiguous()
    addresses, precision = (t.data_ptr() for t in (scores, bias, targets)), find_precision(scores)
    check(find_kernels().cross_entropy(threads(), precision, *scores.shape, *addresses, smoothing, losses.data_ptr()))
    return losses


def checksum(tensors: Iterable[Tensor]) -> int:
    """64 bits that change when any element does, or the order, the shapes or the types.

    It is for comparing within one process: with and without kernels it is another number.
    """
    plain = [tensor.detach().cpu().contiguous() for tensor in tensors]
    if describe().level is None:
        digest = hashlib.blake2b(digest_size=8)
        for tensor in plain:
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.flatten().view(torch.uint8).numpy().data)
        return int.from_bytes(digest.digest(), "little")
    places = np.array([tensor.data_ptr() for tensor in plain], np.uint64)
    sizes = np.array([tensor.nbytes for tensor in plain], np.int64)
    marks = np.array([hash((tensor.shape, tensor.dtype.itemsize)) for tensor in plain], np.int64)
    result = np.zeros(1, np.uint64)
    addresses = (array.ctypes.data for array in (places, sizes, marks, result))
    check(find_kernels().checksum(threads(), len(plain), *addresses))
    return int(result[0])
