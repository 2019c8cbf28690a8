"""Blocks in use without PyTorch's cost of calling, and with faster products: stepping.c.

A step for one row computes for half a millisecond, in a hundred and more operations that cost some microseconds each to
call. A block's step here is one call; and so is, of whole sequences, all that follows their attention. Where there is
no C compiler, or a block does something that stepping.c does not know, PyTorch does it; the numbers are the same up to
rounding.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.bend import Bend
from seqloom.nn.bind import Function
from seqloom.nn.multihead import KeyValue
from seqloom.nn.native import load_library
from seqloom.nn.transformer import BlockStep, TransformerBlock

_MOST_SEEN = 2**17  # beams of a line times tokens: stepping.c keeps a number for each on a thread's stack
_F = TypeVar("_F", bound=Callable[..., Any])
_WIDEST = 512  # of a model, or the smaller side of a matrix; beyond it products wait for memory, whoever computes
_WIDE, _CHUNK, _MANY = 16, 60, 480  # as in stepping.c


class _Linear(ctypes.Structure):
    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("inputs", ctypes.c_int),
        ("outputs", ctypes.c_int),
    )


class _Norm(ctypes.Structure):
    _fields_ = (("gain", ctypes.c_void_p), ("shift", ctypes.c_void_p), ("epsilon", ctypes.c_float))


class _Block(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("model_dim", "heads", "key_value_heads", "head_dim", "hidden_dim")),
        *((name, ctypes.c_int) for name in ("post_norm", "gated", "bend")),
        *((name, _Norm) for name in ("attention_norm", "cross_norm", "feedforward_norm")),
        *((name, _Linear) for name in ("in_", "out", "query", "cross_out", "expand", "contract")),
        ("frequencies", ctypes.c_void_p),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("batch", "beams", "room", "position", "source_length")),
        *((name, ctypes.c_void_p) for name in ("past", "ancestry", "keys", "values", "source_bias")),
    )


class QuickBlock(NamedTuple):
    """What makes a block faster in use; the functions differentiate nothing."""

    project: Function
    """The in-projection of its attention."""
    hasten: Callable[[BlockStep], BlockStep] | None
    """A faster step for few rows, from PyTorch's, which is left what stepping.c does not know."""
    finish: Callable[[Float[Tensor, "N D"], Float[Tensor, "N A"]], Float[Tensor, "N D"]] | None
    """Of whole sequences, all that follows attention: what came in and what attention has mixed in, what comes out."""


def hasten_linear(product: Function, weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"] | None) -> Function:
    """The same product x Wᵀ + b, faster where that can be had; not to be differentiated."""
    library = _load()
    if library is None or min(weight.shape) > _WIDEST or not _suits(weight):
        return product
    kept: list[Tensor] = []
    return _holding(kept, _multiply(library, _pack(weight, bias, kept), product))


def hasten_block(block: TransformerBlock) -> QuickBlock | None:
    """What makes a block faster, or None where nothing can."""
    library = _load()
    may_step, may_finish = _knows_step(block), block.cross is None
    if library is None or not _knows(block) or not (may_step or may_finish):
        return None
    kept: list[Tensor] = []
    fixed = _describe(block, kept)
    return QuickBlock(
        _holding(kept, _multiply(library, fixed.in_, block.attention.in_projection.forward)),
        _holding(kept, _hasten_step(library, fixed)) if may_step else None,
        _holding(kept, _finish(library, fixed)) if may_finish else None,
    )


def _multiply(library: ctypes.CDLL, packed: _Linear, product: Function) -> Function:
    inputs, outputs = packed.inputs, packed.outputs

    def multiply(x: Tensor) -> Tensor:
        if x.shape[-1] != inputs or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return product(x)
        x = x.contiguous()
        out = x.new_empty(*x.shape[:-1], outputs)
        library.linear(x.numel() // inputs, x.data_ptr(), ctypes.byref(packed), out.data_ptr())
        return out

    return multiply


def _hasten_step(library: ctypes.CDLL, fixed: _Block) -> Callable[[BlockStep], BlockStep]:
    per_row = fixed.model_dim + fixed.heads * fixed.head_dim + max(fixed.expand.outputs, fixed.in_.outputs)

    def run(x: Tensor, past: KeyValue, position: int, ancestry: Tensor | None, *memory: Any) -> Tensor:
        batch, _, room, beams, _ = past.shape
        (keys, values), bias = memory[:2] if memory else ((None, None), None)
        length = 0 if keys is None else keys.shape[2]
        now = _Step(batch, beams, room, position, length, *map(_address, (past, ancestry, keys, values, bias)))
        x = x.contiguous()
        out, buffer = torch.empty_like(x), x.new_empty(x.shape[0] * per_row)
        library.step(ctypes.byref(fixed), ctypes.byref(now), *(t.data_ptr() for t in (x, buffer, out)))
        return out

    def hasten(step: BlockStep) -> BlockStep:
        def choose(x: Tensor, past: KeyValue, position: int, ancestry: Tensor | None, *memory: Any) -> Tensor:
            batch, _, room, beams, _ = past.shape
            one_each = x.shape[0] == batch * beams and position < room
            told = len(memory) > 2 and memory[2] is not None  # what is looked at, PyTorch tells
            fits = beams * (position + 1) <= _MOST_SEEN
            return (run if one_each and fits and not told else step)(x, past, position, ancestry, *memory)

        return choose

    return hasten


def _finish(library: ctypes.CDLL, fixed: _Block) -> Callable[[Tensor, Tensor], Tensor]:
    per_row = fixed.model_dim + fixed.expand.outputs

    def finish(x: Tensor, mixed: Tensor) -> Tensor:
        x, mixed = x.contiguous(), mixed.contiguous()
        rows, threads = len(x), torch.get_num_threads()
        buffer = x.new_empty((rows if rows < _MANY else threads * _CHUNK) * per_row)
        out = torch.empty_like(x)
        library.finish(ctypes.byref(fixed), threads, rows, *(t.data_ptr() for t in (x, mixed, buffer, out)))
        return out

    return finish


def _holding(kept: list[Tensor], function: _F) -> _F:
    """The same function, which keeps what it points to alive."""
    function.__dict__["kept"] = kept
    return function


def _knows_step(block: TransformerBlock) -> bool:
    attention = block.attention
    special = (attention.window, attention.slopes, attention.relative)
    return attention.causal and not attention.normalise_qk and all(thing is None for thing in special)


def _knows(block: TransformerBlock) -> bool:
    norms = [m for m in block.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm)]
    return (
        block.attention.in_projection.in_features <= _WIDEST
        and all(type(m) is not nn.LayerNorm or m.bias is not None for m in norms)
        and all(m.weight is not None for m in norms)
        and all(_suits(weight) for weight in block.parameters())
        and all(type(m) is nn.Linear for m in block.modules() if isinstance(m, nn.Linear))
    )


def _suits(weight: Tensor) -> bool:
    return weight.dtype == torch.float32 and weight.device.type == "cpu"


def _describe(block: TransformerBlock, kept: list[Tensor]) -> _Block:
    attention, cross, feedforward = block.attention, block.cross, block.feedforward
    kind = feedforward.activation
    gated = kind.endswith("-gated")
    fixed = _Block(
        model_dim=attention.in_projection.in_features,
        heads=attention.num_heads,
        key_value_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        hidden_dim=feedforward.contract.in_features,
        post_norm=block.attention_residual.position == "post",
        gated=gated,
        bend=get_args(Bend).index(kind.removesuffix("-gated")),
        attention_norm=_lay_norm(block.attention_residual.norm, kept),
        feedforward_norm=_lay_norm(block.feedforward_residual.norm, kept),
        in_=_pack(attention.in_projection.weight, attention.in_projection.bias, kept),
        out=_pack(attention.out_projection.weight, attention.out_projection.bias, kept),
        expand=_pack(feedforward.expand.weight, feedforward.expand.bias, kept),
        contract=_pack(feedforward.contract.weight, feedforward.contract.bias, kept),
        frequencies=None if attention.rotary is None else _keep(attention.rotary.frequencies, kept),
    )
    if cross is not None and block.cross_residual is not None:
        fixed.cross_norm = _lay_norm(block.cross_residual.norm, kept)
        fixed.query = _pack(cross.query_projection.weight, cross.query_projection.bias, kept)
        fixed.cross_out = _pack(cross.out_projection.weight, cross.out_projection.bias, kept)
    return fixed


def _pack(weight: Tensor, bias: Tensor | None, kept: list[Tensor]) -> _Linear:
    outputs, inputs = weight.shape
    bias = weight.new_zeros(outputs) if bias is None else bias
    more = -outputs % _WIDE
    packed = nn.functional.pad(weight.detach(), (0, 0, 0, more)).unflatten(0, (-1, _WIDE)).transpose(1, 2)
    return _Linear(_keep(packed, kept), _keep(nn.functional.pad(bias, (0, more)), kept), inputs, outputs)


def _lay_norm(norm: nn.Module, kept: list[Tensor]) -> _Norm:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    shift = None if isinstance(norm, nn.RMSNorm) else _keep(norm.bias, kept)
    return _Norm(_keep(norm.weight, kept), shift, norm.eps)


def _keep(tensor: Tensor, kept: list[Tensor]) -> int:
    """The address of a copy that nobody else writes to."""
    kept.append(tensor.detach().clone(memory_format=torch.contiguous_format))
    return kept[-1].data_ptr()


def _address(tensor: Tensor | None) -> int | None:
    if tensor is None:
        return None
    assert tensor.is_contiguous()
    return tensor.data_ptr()


@cache
def _load() -> ctypes.CDLL | None:
    library = load_library("stepping")
    if library is not None:
        pointer = ctypes.c_void_p
        library.linear.argtypes = (ctypes.c_int, pointer, pointer, pointer)
        library.step.argtypes = (pointer,) * 5
        library.finish.argtypes = (pointer, ctypes.c_int, ctypes.c_int, *(pointer,) * 4)
        library.linear.restype = library.step.restype = library.finish.restype = None
    return library
