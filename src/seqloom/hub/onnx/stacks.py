"""Encoders and decoders of each family over padded rows.

A decoder reads a few new tokens at a time. Its state (the key-value cache, or the state of a recurrence) comes in as
tensors and goes out as tensors.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import assert_never

import torch
from torch import Tensor, nn

from seqloom.decoders.base import Decoder
from seqloom.decoders.convolutional import ConvolutionalDecoder
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.base import Encoder
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.errors import RunError
from seqloom.hub.onnx.padded import attend_source, encode_blocks, reverse_rows, shift, step_block
from seqloom.hub.onnx.recurrence import TracedCell
from seqloom.nn.multihead import CrossAttention
from seqloom.nn.positions import PositionEncoding
from seqloom.nn.transformer import Stack
from seqloom.types import Encoded

Shape = tuple[int | str, ...]
"""A name stands for a side of any length."""
Tensors = list[Tensor]
_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two


class PaddedEncoder(nn.Module):
    """An encoder of any family over padded rows; its output is 0 in the padding."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        if not isinstance(encoder, TransformerEncoder | RecurrentEncoder | ConvolutionalEncoder):
            raise RunError(f"there is no ONNX graph for an encoder of the class {type(encoder).__name__}")
        self.encoder = encoder
        layers = encoder.layers if isinstance(encoder, RecurrentEncoder) else ()
        self.cells = nn.ModuleList(TracedCell(one.cell) for layer in layers for one in layer)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """The state of each token."""
        real = mask.unsqueeze(-1)
        match self.encoder:
            case TransformerEncoder() as encoder:
                x = encoder.input_norm(_encode_positions(encoder.positions, x, mask))
                states = encoder.final_norm(encode_blocks(encoder.blocks, x, mask))
            case RecurrentEncoder() as encoder:
                states = self._recur(encoder, x, mask)
            case ConvolutionalEncoder() as encoder:
                states = _encode_positions(encoder.positions, x, mask)
                for layer in encoder.layers:
                    near = torch.cat([shift(states * real, offset) for offset in layer.offsets], dim=-1)
                    states = (states + layer._gate(near)) * _HALF
            case _ as unreachable:
                assert_never(unreachable)
        padded: Tensor = states * real
        return padded

    def _recur(self, encoder: RecurrentEncoder, x: Tensor, mask: Tensor) -> Tensor:
        cells = iter(self.cells)
        for index, directions in enumerate(encoder.layers):
            assert isinstance(directions, Stack)
            outs = []
            for one in directions:
                start = x.new_zeros(x.shape[0], one.num_parts, one.hidden_dim)
                out, _ = next(cells)(reverse_rows(x, mask) if one.reverse else x, start)
                outs.append(reverse_rows(out, mask) if one.reverse else out)
            both = torch.cat(outs, dim=-1)
            x = x + both if encoder.residual and index else both
        return x


def _encode_positions(encoding: PositionEncoding | None, x: Tensor, mask: Tensor) -> Tensor:
    if encoding is None:
        return x
    positions = torch.arange(x.shape[1]).expand(x.shape[0], -1)
    return encoding.encode_input(x, positions, mask.sum(1, keepdim=True).expand(-1, x.shape[1]))


class SteppedDecoder(nn.Module, ABC):
    """A decoder of any family that reads new tokens after earlier ones."""

    past: dict[str, Shape]
    """The shapes of the state; it starts as zeros, with no earlier tokens."""
    source: dict[str, Shape]
    """The shapes of what is computed once from a source."""

    @abstractmethod
    def read(self, memory: Encoded) -> tuple[Tensors, Tensors]:
        """What is computed once from a source, and the first state; empty where that is zeros."""

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None, source: Tensors, past: Tensors) -> tuple[Tensor, Tensors]:
        """The hidden states of new tokens (B, T, D), and the next state."""


def step_by_step(decoder: Decoder) -> SteppedDecoder:
    """The traceable form of a decoder."""
    match decoder:
        case TransformerDecoder():
            return _Attention(decoder)
        case RecurrentDecoder():
            return _Recurrence(decoder)
        case ConvolutionalDecoder():
            return _Convolution(decoder)
        case _:
            raise RunError(f"there is no ONNX graph for a decoder of the class {type(decoder).__name__}")


class _Attention(SteppedDecoder):
    def __init__(self, decoder: TransformerDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        own = decoder.blocks[0].attention
        shape: Shape = ("batch", 2 * own.num_kv_heads, "past", own.head_dim)
        self.past = {str(index): shape for index in range(len(decoder.blocks))}
        self.cross = [block.cross for block in decoder.blocks if block.cross is not None]
        self.source = _name_keys(self.cross)

    def read(self, memory: Encoded) -> tuple[Tensors, Tensors]:
        """Keys and values of each layer."""
        return [tensor for cross in self.cross for tensor in cross.project(memory.states)], []

    def forward(self, x: Tensor, mask: Tensor | None, source: Tensors, past: Tensors) -> tuple[Tensor, Tensors]:
        """The number of earlier tokens is the number of keys."""
        positions = past[0].shape[2] + torch.arange(x.shape[1])
        if self.decoder.positions is not None:
            x = self.decoder.positions.encode_input(x, positions.expand(x.shape[0], -1), positions + 1)
        x, bias, state = self.decoder.input_norm(x), _hide(mask), []
        for index, block in enumerate(self.decoder.blocks):
            own = (source[2 * index], source[2 * index + 1]) if source else None
            x, present = step_block(block, x, past[index], own, bias)
            state.append(present)
        return self.decoder.final_norm(x), state


class _Recurrence(SteppedDecoder):
    def __init__(self, decoder: RecurrentDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.cells = nn.ModuleList(TracedCell(layer.cell) for layer in decoder.layers)
        shape: Shape = ("batch", decoder.layers[0].num_parts, decoder.layers[0].hidden_dim)
        self.past = {str(index): shape for index in range(len(decoder.layers))}
        width = decoder.bridge.in_features if decoder.has_source else 0
        self.source = {"states": ("batch", "source", width), "summary": ("batch", width)} if width else {}

    def read(self, memory: Encoded) -> tuple[Tensors, Tensors]:
        """The states and the summary of the source, and the first state, made from the summary."""
        return [memory.states, memory.summary], list(self.decoder._bridge(memory.summary))

    def forward(self, x: Tensor, mask: Tensor | None, source: Tensors, past: Tensors) -> tuple[Tensor, Tensors]:
        """The state of each layer is passed on."""
        decoder, state, summary = self.decoder, [], None
        if source:
            summary = source[1].unsqueeze(1).expand(-1, x.shape[1], -1)
            x = decoder._input(x, summary)
        for index, cell in enumerate(self.cells):
            out, last = cell(x, past[index])
            x = decoder._after(index, x, out)
            state.append(last)
        if not source:
            return x, state
        context = summary
        if decoder.attends and mask is not None:
            scores = decoder.lookup.score(x, source[0]) + torch.where(mask, 0.0, -torch.inf).unsqueeze(1)
            context = scores.softmax(-1) @ source[0]
        return decoder._output(x, context), state


class _Convolution(SteppedDecoder):
    def __init__(self, decoder: ConvolutionalDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        width = decoder.input_dim
        self.past = {str(n): ("batch", layer.kernel - 1, width) for n, layer in enumerate(decoder.layers)}
        self.past["position"] = ("batch", 1)
        self.source = _name_keys(decoder.cross)

    def read(self, memory: Encoded) -> tuple[Tensors, Tensors]:
        """Keys and values of each layer."""
        return [tensor for cross in self.decoder.cross for tensor in cross.project(memory.states)], []

    def forward(self, x: Tensor, mask: Tensor | None, source: Tensors, past: Tensors) -> tuple[Tensor, Tensors]:
        """The state is the last inputs of each layer, and the number of earlier tokens."""
        *inputs, position = past
        if self.decoder.positions is not None:
            positions = position.long() + torch.arange(x.shape[1])
            x = self.decoder.positions.encode_input(x, positions, positions + 1)
        bias, state = _hide(mask), []
        for index, layer in enumerate(self.decoder.layers):
            joined = torch.cat([inputs[index], x], dim=1)
            state.append(joined[:, x.shape[1] :])
            near = torch.cat([joined[:, n : n + x.shape[1]] for n in range(layer.kernel)], dim=-1)
            h = layer._gate(near)
            if source:
                keys = (source[2 * index], source[2 * index + 1])
                h = (h + attend_source(self.decoder.cross[index], h, keys, bias)) * _HALF
            x = (x + h) * _HALF
        return x, [*state, position + x.shape[1]]


def _hide(mask: Tensor | None) -> Tensor | None:
    """−∞ for the padding of a source: (B, 1, 1, S)."""
    return None if mask is None else torch.where(mask, 0.0, -torch.inf)[:, None, None, :]


def _name_keys(layers: Iterable[CrossAttention]) -> dict[str, Shape]:
    """The shapes of the keys and values of a source in each layer."""
    sizes = [(index, cross.num_heads, cross.head_dim) for index, cross in enumerate(layers)]
    return {f"{n}.{part}": ("batch", heads, "source", dim) for n, heads, dim in sizes for part in ("key", "value")}
