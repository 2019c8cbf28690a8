"""A device that is none: its tensors say that they are on a GPU, and are computed in main memory.

PyTorch lets a program add a device of its own. Each tensor of this one holds an ordinary tensor, and a dispatch mode
computes with these. Two things are as on a GPU: tensors in different places do not mix, and what a program learns of a
tensor it has to wait for. Whatever would wait, copy or read a pointer is written down, with the line that asked for it.

A process that has this device has it for good, so tests with it run in a process of their own.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "pretended"
_ASKING = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount", "histc"}
"""Operations whose result, or its shape, the processor needs to know."""
_PACKING = ("_pack_padded_sequence", "_pad_packed_sequence")
"""What takes and gives the lengths of sequences in main memory on every device."""
_BESIDE = ("set_", "lift_fresh", *_PACKING)
_RECURRENCES = (torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh)
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class _Module(_DummyBackendModule):
    """What `torch.cuda` is for a GPU."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    used = 0

    def set_device(self, device: torch.device) -> None:
        self.used = device.index

    def current_device(self) -> int:
        return self.used


_setup_privateuseone_for_python_backend(NAME, _Module())
DEVICE = torch.device(NAME, 0)


class DeviceTensor(Tensor):
    """A tensor on the device."""

    memory: Tensor
    """Its numbers."""

    @staticmethod
    def __new__(cls, memory: Tensor) -> "DeviceTensor":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            memory.shape,
            strides=memory.stride(),
            storage_offset=memory.storage_offset(),
            dtype=memory.dtype,
            device=DEVICE,
        )
        made.memory = memory
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{operation}: a tensor of the device, where the device is not there")


class MixedError(RuntimeError):
    """Tensors of different devices in one operation."""


class Watch:
    """What happened on the device, and where it was asked for."""

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()
        """Reads of what is on the device, and copies to it that do not come from pinned memory."""
        self.copies: Counter[str] = Counter()
        """From pinned memory to the device; nothing waits for them."""
        self.products: Counter[str] = Counter()
        """Matrix products, each with its type."""
        self.calls: Counter[str] = Counter()
        """Of operations that only a GPU has."""

    def note(self, where: Counter[str], what: str) -> None:
        where[f"{what} at {_find_line()}"] += 1


def _find_line() -> str:
    frame = inspect.currentframe()
    while frame is not None and "/src/seqloom/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return "?" if frame is None else f"{frame.f_code.co_filename.rpartition('/seqloom/')[2]}:{frame.f_lineno}"


def _is_ours(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


class _Operations(TorchDispatchMode):
    """Computes every operation in main memory, and says where its result is."""

    def __init__(self, watch: Watch, *, double: bool) -> None:
        super().__init__()
        self.watch, self.double = watch, double

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), operation._schema.name.rpartition("::")[2]
        if torch.is_inference_mode_enabled() and operation._can_decompose():  # as autograd does where it is on
            with self:
                return operation.decompose(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        here = [tensor for tensor in tensors if isinstance(tensor, DeviceTensor)]
        target = kwargs.get("device")
        if _is_ours(target):
            kwargs["device"] = torch.device("cpu")
        stays = _is_ours(target) or (target is None and bool(here))
        if here:
            self._watch_reads(operation, name, args, kwargs)
        if name in ("_to_copy", "copy_"):
            stays = self._watch_copy(name, args, kwargs, stays)
        elif here:
            self._refuse_mixtures(operation, name, tensors)
        if name in ("mm", "addmm", "bmm", "baddbmm") and here:
            self.watch.note(self.watch.products, f"{name} of {str(here[-1].dtype).removeprefix('torch.')}")
        own = _OWN.get(str(operation).rpartition(".")[0])
        if own is not None and here:
            self.watch.calls[str(operation).rpartition(".")[0]] += 1
        found = (own or operation)(*tree_map(_open, args), **tree_map(_open, kwargs))
        known = {id(tensor.memory): tensor for tensor in here}

        def close(value: Any) -> Any:
            if not isinstance(value, Tensor) or isinstance(value, DeviceTensor) or not stays:
                return value
            if id(value) in known:
                return known[id(value)]
            if value.dtype is torch.float64 and not self.double:
                raise TypeError(f"{operation}: this device has no float64, at {_find_line()}")
            if operation.is_view and here and not here[0].is_inference():
                with torch.inference_mode(False):
                    return DeviceTensor(value)
            return DeviceTensor(value)

        if name in _PACKING:
            return close(found[0]), found[1]
        return args[0] if name == "copy_" else tree_map(close, found)

    def _watch_reads(self, operation: Any, name: str, args: Any, kwargs: Any) -> None:
        counts = str(operation).startswith("aten.repeat_interleave.Tensor") and kwargs.get("output_size") is None
        if name in _ASKING or "unique" in name or counts:
            self.watch.note(self.watch.waits, name)
        if name in _INDEXING:
            indices = [index for index in args[1] if isinstance(index, Tensor)]
            fills = name.startswith("index_put") and args[2].numel() == 1 and not (len(args) > 3 and args[3])
            if not fills and any(index.dtype in (torch.bool, torch.uint8) for index in indices):
                self.watch.note(self.watch.waits, f"{name} by a mask")
            if any(not isinstance(index, DeviceTensor) and index.ndim for index in indices):
                self.watch.note(self.watch.waits, f"{name} by indices in main memory")

    def _watch_copy(self, name: str, args: Any, kwargs: Any, stays: bool) -> bool:
        """Note a copy from one place to another; whether its result is on the device."""
        source = args[0] if name == "_to_copy" else args[1]
        late = kwargs.get("non_blocking", args[2] if name == "copy_" and len(args) > 2 else False)
        comes = isinstance(source, DeviceTensor)
        stays = isinstance(args[0], DeviceTensor) if name == "copy_" else stays
        if comes and not stays:
            self.watch.note(self.watch.waits, f"{name} from the device")
        if stays and not comes and source.numel():
            waits = not (late and getattr(source, "pinned", False))
            self.watch.note(self.watch.waits if waits else self.watch.copies, f"{name} to the device")
        return stays

    def _refuse_mixtures(self, operation: Any, name: str, tensors: list[Tensor]) -> None:
        if name in (*_INDEXING, *_BESIDE):
            tensors = tensors[:1]
        for tensor in tensors:
            if not isinstance(tensor, DeviceTensor) and tensor.ndim:
                raise MixedError(f"{operation}: {tuple(tensor.shape)} is in main memory, at {_find_line()}")


class _Functions(TorchFunctionMode):
    """What never reaches an operation: pointers, pinned memory, and tensors made of lists."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, DeviceTensor):
            if function in (Tensor.data_ptr, Tensor.numpy, Tensor.__array__):
                raise TypeError(f"{function.__name__} of a tensor of the device, at {_find_line()}")
            if function is Tensor.tolist:
                self.watch.note(self.watch.waits, "tolist")
                return first.memory.tolist()
            if function is Tensor.__getitem__ and isinstance(args[1], list):
                self.watch.note(self.watch.waits, "index by a list")
                return function(first, DeviceTensor(torch.tensor(args[1])))
        if function is Tensor.pin_memory:
            pinned = first.clone()
            pinned.pinned = True
            return pinned
        if function is torch.tensor and _is_ours(kwargs.get("device")):
            self.watch.note(self.watch.waits, "torch.tensor to the device")
            return DeviceTensor(torch.tensor(*args, **{k: v for k, v in kwargs.items() if k != "device"}))
        if function in _RECURRENCES and any(isinstance(leaf, DeviceTensor) for leaf in tree_leaves(args)):
            return _run_whole(function, args)
        return function(*args, **kwargs)


def _run_whole(function: Any, args: Any) -> Any:
    """A recurrent layer in one operation, as cuDNN has it; under autocast it gives shorter numbers."""
    leaves, shape = tree_flatten(args)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, DeviceTensor)]
    for leaf in leaves:  # lengths, of one dimension, stay in main memory
        if isinstance(leaf, Tensor) and not isinstance(leaf, DeviceTensor) and leaf.is_floating_point():
            raise MixedError(f"{function.__name__}: {tuple(leaf.shape)} is in main memory, at {_find_line()}")

    def run(*given: Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, given, strict=True):
            filled[place] = tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
        return function(*tree_unflatten(filled, shape))

    found = _Whole.apply(run, *(leaves[place] for place in places))
    if torch.is_autocast_enabled(NAME):
        return tuple(tensor.to(torch.get_autocast_dtype(NAME)) for tensor in found)
    return found


class _Whole(torch.autograd.Function):
    """A function of tensors, run in main memory with its gradient, as one operation of the device."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], *given: DeviceTensor) -> Any:
        with torch.inference_mode(False), torch.enable_grad():
            ctx.given = [tensor.memory.detach().clone().requires_grad_() for tensor in given]
            ctx.found = run(*ctx.given)
        return tuple(DeviceTensor(tensor.detach()) for tensor in ctx.found)

    @staticmethod
    def backward(ctx: Any, *grads: DeviceTensor) -> Any:
        wanted = [tensor.memory for tensor in grads]
        found = torch.autograd.grad(ctx.found, ctx.given, wanted, allow_unused=True)
        return None, *(None if grad is None else DeviceTensor(grad) for grad in found)


def _open(value: Any) -> Any:
    return value.memory if isinstance(value, DeviceTensor) else value


_OWN: dict[str, Callable[..., Any]] = {}
"""Operations that only a GPU has, as they are computed here."""


def implement(name: str, function: Callable[..., Any]) -> None:
    """Let the device have an operation that main memory has not, such as `torch_attn._varlen_attn`."""
    _OWN[name] = function


@contextmanager
def device(*, double: bool = True) -> Iterator[Watch]:
    """The device is there within the `with` block; without `double` it has no float64, as Apple's have none."""
    watch = Watch()
    with (
        torch.autograd.set_multithreading_enabled(False),
        _Operations(watch, double=double),
        _Functions(watch),
    ):
        yield watch


def place(module: nn.Module) -> nn.Module:
    """Put the weights of a module on the device; those that are shared stay shared."""
    moved: dict[int, Tensor] = {}
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            for name, tensor in table.items():
                if tensor is None:
                    continue
                if id(tensor) not in moved:
                    moved[id(tensor)] = _place(tensor)
                table[name] = moved[id(tensor)]  # type: ignore[assignment]
        if isinstance(part, nn.RNNBase):
            part._flat_weights = [getattr(part, name) for name in part._flat_weights_names]
    return module


def _place(tensor: Tensor) -> Tensor:
    own = DeviceTensor(tensor.detach().clone())
    if isinstance(tensor, nn.Parameter):
        own.requires_grad_(tensor.requires_grad)
        own._is_param = True  # what makes it an `nn.Parameter`
    return own


def take(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, unseen by the watch."""
    return tensor.memory.detach() if isinstance(tensor, DeviceTensor) else tensor.detach()


_LOW = "linear matmul mm addmm bmm baddbmm scaled_dot_product_attention"
_HIGH = (
    "layer_norm rms_norm softmax.int log_softmax.int logsumexp cumsum sum sum.dim_IntList exp log pow.Tensor_Scalar "
    "nll_loss cross_entropy_loss mse_loss linalg_vector_norm"
)
"""What autocast computes in the shorter type and what in float32: PyTorch's "CUDA Ops Reference"."""
_libraries = [torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")]
_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


def _register(name: str, *, low: bool) -> None:
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def call(*args: Any, **kwargs: Any) -> Any:
        kind = torch.get_autocast_dtype(NAME) if low else torch.float32

        def cast(value: Any) -> Any:
            short = isinstance(value, DeviceTensor) and value.is_floating_point() and value.dtype is not torch.float64
            return value.to(kind) if short else value

        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            return operation(*tree_map(cast, args), **tree_map(cast, kwargs))

    _libraries[1].impl(name, call, "AutocastPrivateUse1")


_libraries[0].fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
for _name in (*_LOW.split(), *_HIGH.split()):
    _register(_name, low=_name in _LOW.split())


def _attend_varlen(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, others: Tensor, *rest: Any) -> Any:
    """torch.nn.attention.varlen in the open, sequence by sequence."""
    _, _, causal, scale, *_ = rest
    out = torch.cat(
        [
            torch.nn.functional.scaled_dot_product_attention(
                *(t.float().transpose(0, 1) for t in (q[a:b], k[c:d], v[c:d])),
                is_causal=causal,
                scale=scale,
                enable_gqa=True,
            ).transpose(0, 1)
            for a, b, c, d in zip(starts, starts[1:], others, others[1:], strict=False)
        ]
    )
    return out.to(q.dtype), torch.zeros(q.shape[1], len(q)), torch.zeros(2, dtype=torch.uint64)


def _differentiate_varlen(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *rest: Any) -> Any:
    starts, others, longest, longest_key, causal, _, scale, *_ = rest
    with torch.inference_mode(False), torch.enable_grad():
        given = [t.detach().clone().requires_grad_() for t in (q, k, v)]
        again = _attend_varlen(*given, starts, others, longest, longest_key, causal, scale)[0]
    return torch.autograd.grad(again, given, grad)


implement("torch_attn._varlen_attn", _attend_varlen)
implement("torch_attn._varlen_attn_backward", _differentiate_varlen)
