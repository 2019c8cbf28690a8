"""Linear layers and Transformer blocks in use: copies of their weights, laid out as block.c reads them.

A packed layer is made once, from weights that may change afterwards without changing it, and differentiates nothing.
Inputs are checked: anything but float32 in memory is refused.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.native.library import find_kernels, threads
from seqloom.native.structures import ACTIVATIONS, PRECISIONS, Block, Linear, Norm, Step, check

_MOST_INPUTS = 65_536
Weights = tuple[Tensor, Tensor | None]
"""Weight (outputs, inputs) and bias (outputs) of a linear layer."""
Sources = Sequence[tuple[Tensor, Tensor]]
"""The keys and values (batch, num_heads, length, head_dim) that each block attends to."""


class _Immutable:
    """Made once and never changed, so that a copy may be the thing itself."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class PackedLinear(_Immutable):
    """y = x Wᵀ + b. A row of y does not depend on the other rows, nor on the number of threads.

    `precision` is that of the weights, and of the rows while they are multiplied: linear.c, bfloat16.c, int8.c.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: str = "float32") -> None:
        weight, bias = _take(weight), None if bias is None else _take(bias).contiguous()
        self._kernels = find_kernels()
        self.outputs, self.inputs = weight.shape
        if bias is not None and bias.shape != (self.outputs,):
            raise ShapeError(f"bias has the shape {tuple(bias.shape)} but weight has {self.outputs} outputs")
        if precision == "int8" and self.inputs > _MOST_INPUTS:
            raise ShapeError(f"a sum of {self.inputs} products of bytes may not fit into 32 bits; {_MOST_INPUTS} do")
        self.precision = precision
        self._layer = Linear(None, None, None, None, self.inputs, self.outputs, PRECISIONS.index(precision))
        self._address = ctypes.addressof(self._layer)
        self._panels = torch.empty(self._kernels.packed_size(self._address), dtype=torch.uint8)
        address = None if bias is None else bias.data_ptr()
        self._kernels.pack(weight.data_ptr(), *weight.stride(), address, self._panels.data_ptr(), self._address)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) → (..., outputs)."""
        *shape, width = x.shape
        if width != self.inputs:
            raise ShapeError(f"x has rows of {width} numbers but the layer takes {self.inputs}")
        x = _take(x).contiguous()
        out = x.new_empty(*shape, self.outputs)
        rows = out.numel() // self.outputs if self.outputs else 0
        check(self._kernels.linear(threads(), rows, x.data_ptr(), self._address, out.data_ptr()))
        return out

    def __repr__(self) -> str:
        return f"PackedLinear({self.inputs}, {self.outputs}, {self.precision})"


@dataclass(frozen=True)
class NormWeights:
    """LayerNorm, or RMSNorm where there is no shift."""

    gain: Tensor
    shift: Tensor | None
    epsilon: float


@dataclass(frozen=True)
class BlockWeights:
    """All that a Transformer block computes with."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    activation: str
    """Its name, as in nn/feedforward.py; `-gated` where it multiplies a second half."""
    post_norm: bool
    norms: Mapping[str, NormWeights]
    """attention, feedforward; with cross-attention also cross."""
    layers: Mapping[str, Weights]
    """in (queries of all heads, then keys, then values of all key-value heads), out, expand, contract; with
    cross-attention also query and cross_out."""
    rotary_frequencies: Tensor | None = None
    normalise_qk: bool = False
    precision: str = "float32"
    """Of its linear layers."""


class PackedBlock(_Immutable):
    """A Transformer block: a step of decoding, or of whole sequences all that follows attention."""

    def __init__(self, weights: BlockWeights) -> None:
        self._kernels = find_kernels()
        self._kept: list[Tensor] = []
        self.layers = {name: PackedLinear(*layer, weights.precision) for name, layer in weights.layers.items()}
        """By their names in `BlockWeights`."""
        self._check_sizes(weights)
        block = self._block = Block()
        block.model_dim, block.hidden_dim = self.layers["in"].inputs, self.layers["contract"].inputs
        block.heads, block.kv_heads, block.head_dim = weights.num_heads, weights.num_kv_heads, weights.head_dim
        block.post_norm, block.gated = weights.post_norm, weights.activation.endswith("-gated")
        block.activation = ACTIVATIONS.index(weights.activation.removesuffix("-gated"))
        for name, layer in self.layers.items():
            setattr(block, name, layer._layer)
        for name, norm in weights.norms.items():
            setattr(block, f"{name}_norm", Norm(self._keep(norm.gain), self._keep(norm.shift), norm.epsilon))
        block.normalised = weights.normalise_qk
        block.frequencies = self._keep(weights.rotary_frequencies)
        self._address = ctypes.addressof(block)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Whole sequences: what came to the last attention and what its heads mixed, row by row → what comes out."""
        if x.shape != (len(mixed), self._block.model_dim) or mixed.shape[1] != self._block.out.inputs:
            raise ShapeError(f"x is {_name(x)} and mixed {_name(mixed)}, which do not fit the block")
        source = "query" in self.layers
        x, mixed, out = _take(x).contiguous(), _take(mixed).contiguous(), torch.empty(x.shape, dtype=torch.float32)
        places = (t.data_ptr() for t in (x, mixed, out))
        check(self._kernels.finish(threads(), self._address, source, len(x), *places))
        return out

    @property
    def shape(self) -> tuple[int, int, int, int, bool]:
        """Width, heads, key-value heads, their width, and whether there is cross-attention."""
        block = self._block
        return block.model_dim, block.heads, block.kv_heads, block.head_dim, "query" in self.layers

    def _check_sizes(self, weights: BlockWeights) -> None:
        heads, groups, dim = weights.num_heads, weights.num_kv_heads, weights.head_dim
        width, hidden, inner = self.layers["in"].inputs, self.layers["contract"].inputs, heads * dim
        wide = hidden * (2 if weights.activation.endswith("-gated") else 1)
        sizes = {"in": (width, inner + 2 * groups * dim), "out": (inner, width), "expand": (width, wide)}
        sizes |= {"contract": (hidden, width), "query": (width, inner), "cross_out": (inner, width)}
        for name, layer in self.layers.items():
            have, need = (layer.inputs, layer.outputs), sizes[name]
            if have != need:
                sides = f"maps {have[0]} → {have[1]} numbers, but the block needs {need[0]} → {need[1]}"
                raise ShapeError(f"the layer {name} {sides}")
        if heads % groups:
            raise ShapeError(f"num_heads = {heads} is no multiple of num_kv_heads = {groups}")
        for tensor in [t for norm in weights.norms.values() for t in (norm.gain, norm.shift) if t is not None]:
            if tensor.shape != (width,):
                raise ShapeError(f"a norm has {tuple(tensor.shape)} weights, but the block is {width} wide")
        rotary = weights.rotary_frequencies
        if rotary is not None and rotary.shape != (dim // 2,):
            raise ShapeError(f"rotary_frequencies has the shape {tuple(rotary.shape)}, not {(dim // 2,)}")

    def _keep(self, tensor: Tensor | None) -> int | None:
        """The address of a copy that nobody else writes to."""
        if tensor is None:
            return None
        self._kept.append(_take(tensor.detach()).clone(memory_format=torch.contiguous_format))
        return int(self._kept[-1].data_ptr())


class PackedStack(_Immutable):
    """Blocks of one shape, one after the other: a step of decoding, of one or more tokens."""

    def __init__(self, blocks: Sequence[PackedBlock]) -> None:
        if len({block.shape for block in blocks}) != 1:
            raise ShapeError("the blocks of a stack must all have the same shape")
        self._blocks = tuple(blocks)
        self._list = ctypes.c_void_p * len(blocks)
        self.addresses = self._list(*(block._address for block in blocks))
        self._shape = blocks[0].shape
        self.width = self._shape[0]

    def step(
        self,
        x: Tensor,
        caches: Sequence[Tensor],
        positions: np.ndarray[Any, np.dtype[np.int32]],
        slots: Tensor | None = None,
        sources: Sources | None = None,
        bias: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """New tokens of each row: (batch · beams, tokens, model_dim) → the same.

        The cache of each block (batch, 2 · num_kv_heads, room, beams, head_dim) is written to, at each line's own
        position. `slots` (batch, beams, room) says in which beam's slot a beam's own token t stands; with one beam it
        may be None. `sources` are each block's keys and values (batch, num_heads, length, head_dim), `bias` what is
        added to their scores. `weights` (batch · beams, tokens, length) gets the attention weights of the last block
        over the source, averaged over heads.
        """
        (batch, _, room, beams, _), length = caches[0].shape, 0 if sources is None else sources[0][0].shape[2]
        self._check_rows(x, batch * beams)
        self.check_caches(caches, sources, length)
        if weights is not None and (
            weights.shape != (*x.shape[:2], length) or weights.dtype != torch.float32 or not weights.is_contiguous()
        ):
            raise ShapeError(f"weights must be float32 of shape {(*x.shape[:2], length)}, not {_name(weights)}")
        if positions.dtype != np.int32 or positions.shape != (batch,):
            raise ShapeError(f"positions must be {batch} numbers of 32 bits, not {positions.dtype} {positions.shape}")
        if slots is None and beams != 1:
            raise ShapeError(f"there are {beams} beams a line but no slots")
        if slots is not None and (
            slots.dtype != torch.int32 or slots.shape != (batch, beams, room) or not slots.is_contiguous()
        ):
            raise ShapeError(f"slots must be int32 of shape {(batch, beams, room)}, not {_name(slots)}")
        bias = self.take_bias(bias, batch, length)
        now = Step(
            *(batch, beams, x.shape[1], room, length, None, positions.ctypes.data),
            *(None if t is None else t.data_ptr() for t in (slots, None, None, bias, weights)),
        )
        keys = values = None
        if sources is not None:
            keys, values = (self.list_places([source[side] for source in sources]) for side in (0, 1))
        x = _take(x).contiguous()
        out = x.new_empty(x.shape)
        status = find_kernels().step(
            *(threads(), len(self._blocks), self.addresses, ctypes.addressof(now)),
            *(self.list_places(caches), keys, values, x.data_ptr(), out.data_ptr()),
        )
        check(status)
        return out

    def list_places(self, tensors: Sequence[Tensor]) -> Any:
        """The address of each block's tensor."""
        return self._list(*[tensor.data_ptr() for tensor in tensors])

    def take_bias(self, bias: Tensor | None, batch: int, length: int) -> Tensor | None:
        """What is added to the scores of the source, as kernels read it."""
        if bias is None:
            return None
        if bias.numel() != batch * length or bias.dtype != torch.float32:
            raise ShapeError(f"the bias of the source must hold {batch} × {length} numbers, not {_name(bias)}")
        return bias.contiguous()

    def _check_rows(self, x: Tensor, rows: int) -> None:
        if x.dim() != 3 or (len(x), x.shape[2]) != (rows, self.width):
            raise ShapeError(f"x is {_name(x)} but there are {rows} rows of tokens of {self.width}")

    def check_caches(self, caches: Sequence[Tensor], sources: Sources | None, length: int) -> None:
        """Refuse caches and sources that do not fit the blocks."""
        _, heads, kv_heads, dim, attends = self._shape
        batch, _, room, beams, _ = shape = caches[0].shape
        if shape != (batch, 2 * kv_heads, room, beams, dim) or len(caches) != len(self._blocks):
            raise ShapeError(f"{len(caches)} caches of shape {tuple(shape)} do not fit {len(self._blocks)} blocks")
        for cache in caches:
            if cache.shape != shape or cache.dtype != torch.float32 or not cache.is_contiguous():
                raise ShapeError(f"a key-value cache must be contiguous float32 {tuple(shape)}, not {_name(cache)}")
        if (sources is not None) is not attends:
            raise ShapeError("a source is given exactly where the blocks have cross-attention")
        wanted = (batch, heads, length, dim)
        for source in sources or ():
            for tensor in source:
                if tensor.shape != wanted or tensor.dtype != torch.float32 or not tensor.is_contiguous():
                    raise ShapeError(f"keys and values must be contiguous, of shape {wanted}, not {_name(tensor)}")
        if sources is not None and len(sources) != len(self._blocks):
            raise ShapeError(f"there are {len(sources)} sources for {len(self._blocks)} blocks")


def _take(tensor: Tensor) -> Tensor:
    """A tensor that kernels can read."""
    if tensor.dtype is not torch.float32 or not tensor.is_cpu or tensor.layout is not torch.strided:
        raise TypeError(f"kernels compute with float32 in memory, not {_name(tensor)} on {tensor.device}")
    return tensor


def _name(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
