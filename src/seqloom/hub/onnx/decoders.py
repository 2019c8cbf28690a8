"""Decoders of each family, a few new tokens at a time: what they keep comes in as tensors and goes out as tensors."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from seqloom.decoders.base import Decoder
from seqloom.decoders.convolutional import ConvolutionalDecoder
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.errors import RunError
from seqloom.hub.onnx.attention import attend_source, step_block
from seqloom.hub.onnx.recurrence import TracedCell
from seqloom.types import Encoded

Shape = tuple[int | str, ...]
"""A side that is a word is free."""
Tensors = list[Tensor]


class SteppedDecoder(nn.Module, ABC):
    """New tokens after those whose past is given."""

    past: dict[str, Shape]
    """What is kept between steps, and how it starts: zeros, of no earlier tokens."""
    source: dict[str, Shape]
    """What is kept of a source."""

    @abstractmethod
    def read(self, memory: Encoded) -> tuple[Tensors, Tensors]:
        """What is kept of a source, and the past that it starts; none where that is zeros."""

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None, source: Tensors, past: Tensors) -> tuple[Tensor, Tensors]:
        """The states of new tokens (B, T, D), and the past with them."""


def step_by_step(decoder: Decoder) -> SteppedDecoder:
    """A decoder of any family."""
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
        cross = [block.cross for block in decoder.blocks if block.cross is not None]
        self.source = {
            f"{index}.{part}": ("batch", one.num_heads, "source", one.head_dim)
            for index, one in enumerate(cross)
            for part in ("key", "value")
        }

    def read(self, memory: Encoded) -> tuple[Tensors, Tensors]:
        """Keys and values of each layer."""
        kept = [block.cross.project(memory.states) for block in self.decoder.blocks if block.cross is not None]
        return [tensor for pair in kept for tensor in pair], []

    def forward(self, x: Tensor, mask: Tensor | None, source: Tensors, past: Tensors) -> tuple[Tensor, Tensors]:
        """How many tokens came before is how many keys there are."""
        positions = past[0].shape[2] + torch.arange(x.shape[1])
        if self.decoder.positions is not None:
            x = self.decoder.positions.encode_input(x, positions.expand(x.shape[0], -1), positions + 1)
        x, bias, kept = self.decoder.input_norm(x), _hide(mask), []
        for index, block in enumerate(self.decoder.blocks):
            own = (source[2 * index], source[2 * index + 1]) if source else None
            x, present = step_block(block, x, past[index], own, bias)
            kept.append(present)
        return self.decoder.final_norm(x), kept


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
        """The states of the source, and the bridge from its summary."""
        return [memory.states, memory.summary], list(self.decoder._bridge(memory.summary))

    def forward(self, x: Tensor, mask: Tensor | None, source: Tensors, past: Tensors) -> tuple[Tensor, Tensors]:
        """The state of each layer goes on."""
        decoder, kept, summary = self.decoder, [], None
        if source:
            summary = source[1].unsqueeze(1).expand(-1, x.shape[1], -1)
            x = decoder._input(x, summary)
        for index, cell in enumerate(self.cells):
            out, last = cell(x, past[index])
            x = decoder._after(index, x, out)
            kept.append(last)
        if not source:
            return x, kept
        context = summary
        if decoder.attends and mask is not None:
            scores = decoder.lookup.score(x, source[0]) + torch.where(mask, 0.0, -torch.inf).unsqueeze(1)
            context = scores.softmax(-1) @ source[0]
        return decoder._output(x, context), kept


class _Convolution(SteppedDecoder):
    def __init__(self, decoder: ConvolutionalDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        width = decoder.input_dim
        self.past = {str(n): ("batch", layer.kernel - 1, width) for n, layer in enumerate(decoder.layers)}
        self.past["position"] = ("batch", 1)
        self.source = {
            f"{index}.{part}": ("batch", one.num_heads, "source", one.head_dim)
            for index, one in enumerate(decoder.cross)
            for part in ("key", "value")
        }

    def read(self, memory: Encoded) -> tuple[Tensors, Tensors]:
        """Keys and values of each layer."""
        return [tensor for cross in self.decoder.cross for tensor in cross.project(memory.states)], []

    def forward(self, x: Tensor, mask: Tensor | None, source: Tensors, past: Tensors) -> tuple[Tensor, Tensors]:
        """The last inputs of each layer; how many tokens came before is counted."""
        *inputs, position = past
        if self.decoder.positions is not None:
            positions = position.long() + torch.arange(x.shape[1])
            x = self.decoder.positions.encode_input(x, positions, positions + 1)
        bias, kept = _hide(mask), []
        for index, layer in enumerate(self.decoder.layers):
            joined = torch.cat([inputs[index], x], dim=1)
            kept.append(joined[:, x.shape[1] :])
            near = torch.cat([joined[:, n : n + x.shape[1]] for n in range(layer.kernel)], dim=-1)
            h = layer._gate(near)
            if source:
                h = (
                    h + attend_source(self.decoder.cross[index], h, (source[2 * index], source[2 * index + 1]), bias)
                ) * _HALF
            x = (x + h) * _HALF
        return x, [*kept, position + x.shape[1]]


_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two


def _hide(mask: Tensor | None) -> Tensor | None:
    """−∞ for the padding of a source: (B, 1, 1, S)."""
    return None if mask is None else torch.where(mask, 0.0, -torch.inf)[:, None, None, :]
