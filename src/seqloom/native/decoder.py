"""A decoder in use, from tokens to scores in one call: decoder.c.

What a step needs of its caches is found out once, and holds for all steps that go on from the same ones.
"""

import ctypes
from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.native.block import NormWeights, PackedLinear, PackedStack, Sources, _Immutable, _take
from seqloom.native.library import find_kernels, threads
from seqloom.native.structures import Model, Norm, Step, check


class Prepared(_Immutable):
    """The places of some caches and of what is attended to, checked."""

    def __init__(
        self,
        stack: PackedStack,
        caches: tuple[Tensor, ...],
        sources: Sources | None,
        bias: Tensor | None,
        vectors: Tensor | None,
    ) -> None:
        """The arguments of `PackedStack.step`; `vectors` (positions, width) are added to embeddings by position."""
        given = caches, sources, bias, vectors
        (batch, _, room, beams, _), length = caches[0].shape, 0 if sources is None else sources[0][0].shape[2]
        stack.check_caches(caches, sources, length)
        bias = stack.take_bias(bias, batch, length)
        vectors = None if vectors is None else _take(vectors).contiguous()
        if vectors is not None and vectors.shape[1] > stack.width:
            raise ShapeError(f"vectors of positions are {vectors.shape[1]} wide, more than {stack.width}")
        self._made_of = given
        self._kept = bias, vectors
        self.rows, self.room, self.beams = batch * beams, room, beams
        self.longest = room if vectors is None else min(room, len(vectors))
        """How many positions there are."""
        self._lines, self._list = batch, ctypes.c_int32 * batch
        self.caches = stack.list_places(caches)
        self.keys = None if sources is None else stack.list_places([keys for keys, _ in sources])
        self.values = None if sources is None else stack.list_places([values for _, values in sources])
        self._step = Step(
            *(batch, beams, 0, room, length, None, None, None, None, None),
            *(None if bias is None else bias.data_ptr(), None, None if vectors is None else vectors.data_ptr()),
            *(0, 0) if vectors is None else vectors.shape,
        )

    def is_of(self, made_of: tuple[object, ...]) -> bool:
        """Whether it was made of the same arguments."""
        return all(map(is_, self._made_of, made_of))

    def describe(self, positions: Sequence[int], tokens: int, slots: Tensor | None) -> tuple[Step, Any]:
        """A step from these positions, and what must live as long."""
        if len(positions) != self._lines:
            raise ShapeError(f"there are {len(positions)} positions for {self._lines} lines")
        read, now = self._list(*positions), Step.from_buffer_copy(self._step)
        now.tokens, now.positions = tokens, ctypes.addressof(read)
        if slots is not None:
            now.slots = slots.data_ptr()
        return now, read


class PackedDecoder(_Immutable):
    """An embedding, a stack of blocks and an output layer."""

    def __init__(
        self,
        table: Tensor,
        factor: float,
        input_norm: NormWeights | None,
        stack: PackedStack,
        final_norm: NormWeights | None,
        output: PackedLinear,
    ) -> None:
        """`table` (vocabulary, model_dim) is read where it is, times `factor`."""
        if table.shape[1] != stack.width or output.inputs != stack.width:
            sizes = f"{table.shape[1]} → {stack.width} → {output.inputs}"
            raise ShapeError(f"embedding, blocks and output layer must be equally wide, not {sizes}")
        self._stack, self._output = stack, output
        self._kept: list[Tensor] = [_take(table.detach()).contiguous()]
        norms = (self._describe(norm, stack.width) for norm in (input_norm, final_norm))
        self._model = Model(
            *(ctypes.addressof(stack.addresses), self._kept[0].data_ptr(), *norms, output._layer),
            *(len(stack.addresses), stack.width, len(table), factor),
        )
        self._address = ctypes.addressof(self._model)

    def prepare(
        self,
        caches: tuple[Tensor, ...],
        sources: Sources | None = None,
        bias: Tensor | None = None,
        vectors: Tensor | None = None,
    ) -> Prepared:
        """For all steps with the same caches."""
        return Prepared(self._stack, caches, sources, bias, vectors)

    def step(self, ids: Tensor, prepared: Prepared, positions: Sequence[int], slots: Tensor | None) -> Tensor:
        """The scores (rows, vocabulary) of what follows new tokens (rows, tokens).

        `positions`: how many tokens each line has read before. Keys and values are added to the caches, and each new
        token to the `slots` (batch, beams, room) of its own beam; with one beam there may be none.
        """
        rows, tokens = ids.shape
        if ids.dtype is not torch.int64 or rows != prepared.rows or not tokens:
            raise ShapeError(f"ids are {ids.dtype} {tuple(ids.shape)}, but there are {prepared.rows} rows of tokens")
        if slots is None and prepared.beams != 1:
            raise ShapeError(f"there are {prepared.beams} beams a line but no slots")
        if slots is not None and (
            slots.dtype is not torch.int32 or slots.numel() != rows * prepared.room or not slots.is_contiguous()
        ):
            raise ShapeError(f"slots must be int32 with {rows} × {prepared.room} numbers, not {slots.dtype}")
        now, kept = prepared.describe(positions, tokens, slots)
        ids = ids.contiguous()
        scores = torch.empty(rows, self._output.outputs, dtype=torch.float32)
        status = find_kernels().predict(
            *(threads(), self._address, ctypes.addressof(now), ids.data_ptr()),
            *(prepared.caches, prepared.keys, prepared.values, scores.data_ptr()),
        )
        del kept
        check(status)
        return scores

    def _describe(self, norm: NormWeights | None, width: int) -> Norm:
        if norm is None:
            return Norm(None, None, 0.0)
        weights = [None if one is None else _take(one.detach()).clone() for one in (norm.gain, norm.shift)]
        if any(one is not None and one.shape != (width,) for one in weights):
            raise ShapeError(f"a norm must have {width} weights")
        self._kept += [one for one in weights if one is not None]
        return Norm(*(None if one is None else one.data_ptr() for one in weights), norm.epsilon)
