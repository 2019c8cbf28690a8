"""Encoders and decoders of each family over padded rows, in operations that take any shape: the source of the graphs.

The stacks in use pack their rows, which depends on the data and so cannot be traced. Here the same modules with the
same weights run on rectangles (B, T, D) with a mask. A decoder reads a few new tokens at a time, after P earlier ones.
Its state (the key-value cache, or the state of a recurrence) comes in as tensors and goes out as tensors.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from seqloom.decoders.base import Decoder
from seqloom.decoders.convolutional import ConvolutionalDecoder
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.base import Encoder
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.errors import RunError
from seqloom.hub.onnx.recurrence import TracedCell
from seqloom.nn.efficient_attention import window_reach
from seqloom.nn.multihead import CrossAttention, SelfAttention, merge_heads
from seqloom.nn.positions import PositionEncoding
from seqloom.nn.transformer import Stack, TransformerBlock
from seqloom.types import Encoded

Shape = tuple[int | str, ...]
"""A name stands for a dimension of any size."""
Tensors = list[Tensor]
KeyValue = tuple[Tensor, Tensor]
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
                states = encoder.final_norm(_encode_blocks(encoder.blocks, x, mask))
            case RecurrentEncoder() as encoder:
                states = self._recur(encoder, x, mask)
            case ConvolutionalEncoder() as encoder:
                states = _encode_positions(encoder.positions, x, mask)
                for layer in encoder.layers:
                    near = torch.cat([_shift(states * real, offset) for offset in layer.offsets], dim=-1)
                    states = (states + layer.apply_kernel(near)) * _HALF
            case other:
                raise RunError(f"encoders of the class {type(other).__name__} have no ONNX graph")
        padded: Tensor = states * real
        return padded

    def _recur(self, encoder: RecurrentEncoder, x: Tensor, mask: Tensor) -> Tensor:
        cells = iter(self.cells)
        for index, directions in enumerate(encoder.layers):
            assert isinstance(directions, Stack)
            outs = []
            for one in directions:
                start = x.new_zeros(x.shape[0], one.num_parts, one.hidden_dim)
                out, _ = next(cells)(_reverse_rows(x, mask) if one.reverse else x, start)
                outs.append(_reverse_rows(out, mask) if one.reverse else out)
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
            raise RunError(f"decoders of the class {type(decoder).__name__} have no ONNX graph")


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
        positions = (past[0].shape[2] + torch.arange(x.shape[1])).expand(x.shape[0], -1)
        if self.decoder.positions is not None:
            x = self.decoder.positions.encode_input(x, positions, positions + 1)
        x, bias, state = self.decoder.input_norm(x), _hide(mask), []
        for index, block in enumerate(self.decoder.blocks):
            own = (source[2 * index], source[2 * index + 1]) if source else None
            x, present = _step_block(block, x, past[index], own, bias)
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
        return [memory.states, memory.summary], list(self.decoder._bridge(memory))

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
            h = layer.apply_kernel(near)
            if source:
                keys = (source[2 * index], source[2 * index + 1])
                h = (h + _attend_source(self.decoder.cross[index], h, keys, bias)) * _HALF
            x = (x + h) * _HALF
        return x, [*state, position + x.shape[1]]


def _hide(mask: Tensor | None) -> Tensor | None:
    """−∞ for the padding of a source: (B, 1, 1, S)."""
    return None if mask is None else torch.where(mask, 0.0, -torch.inf)[:, None, None, :]


def _name_keys(layers: Iterable[CrossAttention]) -> dict[str, Shape]:
    """The shapes of the keys and values of a source in each layer."""
    sizes = [(index, cross.num_heads, cross.head_dim) for index, cross in enumerate(layers)]
    return {f"{n}.{part}": ("batch", heads, "source", dim) for n, heads, dim in sizes for part in ("key", "value")}


def _reverse_rows(x: Tensor, mask: Tensor) -> Tensor:
    """Each row from its last real token to its first; padding stays where it is: (B, T, D)."""
    lengths, positions = mask.sum(1, keepdim=True), torch.arange(x.shape[1])
    order = torch.where(positions < lengths, lengths - 1 - positions, positions)
    return x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.shape[2]))


def _shift(x: Tensor, offset: int) -> Tensor:
    """For each token the vector `offset` positions later, zeros beyond the ends: (B, T, D)."""
    length = x.shape[1]
    return F.pad(x, (0, 0, max(0, -offset), max(0, offset)))[:, max(0, offset) :][:, :length]


def _encode_blocks(blocks: nn.ModuleList, x: Tensor, mask: Tensor) -> Tensor:
    """Whole rows through encoder blocks."""
    positions = torch.arange(x.shape[1]).expand(x.shape[0], -1)
    for block in blocks:
        assert isinstance(block, TransformerBlock)
        x = block.attention_residual(x, lambda h, own=block.attention: _attend_whole(own, h, positions, mask))
        assert block.feedforward is not None
        assert block.feedforward_residual is not None
        x = block.feedforward_residual(x, block.feedforward)
    return x


def _step_block(
    block: TransformerBlock, x: Tensor, past: Tensor, source: KeyValue | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """New tokens through a decoder block, and the key-value cache with them: (B, 2G, P + T, K)."""
    kept: list[Tensor] = []

    def attend(h: Tensor) -> Tensor:
        out, present = _attend_past(block.attention, h, past)
        kept.append(present)
        return out

    x = block.attention_residual(x, attend)
    if block.cross is not None and block.cross_residual is not None and source is not None:
        cross = block.cross
        x = block.cross_residual(x, lambda h: _attend_source(cross, h, source, bias))
    assert block.feedforward is not None
    assert block.feedforward_residual is not None
    return block.feedforward_residual(x, block.feedforward), kept[0]


def _attend_source(cross: CrossAttention, x: Tensor, source: KeyValue, bias: Tensor | None) -> Tensor:
    """Cross-attention of new tokens to a projected source."""
    query = cross.query_projection(x).unflatten(-1, (cross.num_heads, -1)).transpose(1, 2)
    out: Tensor = cross.out_projection(merge_heads(scaled_dot_product_attention(query, *source, bias)))
    return out


def _attend_whole(own: SelfAttention, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
    heads = _project(own, x, positions)
    if own.reverse:
        heads = _reverse_rows(heads.flatten(2), mask).unflatten(-1, heads.shape[2:])
    sizes = [own.num_heads, own.num_kv_heads, own.num_kv_heads]
    query, key, value = heads.transpose(1, 2).split(sizes, dim=1)
    bias = _bias(own, x.shape[1], x.shape[1]) + torch.where(mask, 0.0, -torch.inf)[:, None, None, :]
    attended = scaled_dot_product_attention(query, _share(own, key), _share(own, value), bias)
    merged = merge_heads(attended)
    out: Tensor = own.out_projection(_reverse_rows(merged, mask) if own.reverse else merged)
    return out


def _attend_past(own: SelfAttention, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    before, length = past.shape[2], x.shape[1]
    positions = (before + torch.arange(length)).expand(x.shape[0], -1)
    heads = _project(own, x, positions).transpose(1, 2)  # (B, H + 2G, T, K)
    query, new = heads.split([own.num_heads, 2 * own.num_kv_heads], dim=1)
    present = torch.cat([past, new], dim=2)
    key, value = present.chunk(2, dim=1)
    bias = _bias(own, length, before + length)
    attended = scaled_dot_product_attention(query, _share(own, key), _share(own, value), bias)
    return own.out_projection(merge_heads(attended)), present


def _project(own: SelfAttention, x: Tensor, positions: Tensor) -> Tensor:
    heads: Tensor = own.in_projection(x).unflatten(-1, (own.num_heads + 2 * own.num_kv_heads, own.head_dim))
    return own.encode_heads(heads, positions)


def _share(own: SelfAttention, heads: Tensor) -> Tensor:
    repeats = own.num_heads // own.num_kv_heads
    return heads if repeats == 1 else heads.unsqueeze(2).expand(-1, -1, repeats, -1, -1).flatten(1, 2)


def _bias(own: SelfAttention, num_queries: int, num_keys: int) -> Tensor:
    """What is added to the scores: −∞ where attention is not allowed, and position biases."""
    keys = torch.arange(num_keys)
    distance = keys[num_keys - num_queries :].unsqueeze(1) - keys  # from a key to its query
    allowed = distance >= 0 if own.causal else torch.ones_like(distance, dtype=torch.bool)
    if own.window is not None:
        before, after = window_reach(own.window, causal=own.causal)
        allowed = allowed & (distance <= before) & (distance >= -after)
    bias = torch.where(allowed, 0.0, -torch.inf)
    relative = own.relative
    return bias + relative.score_bias(distance) if relative is not None and relative.acts_on_scores else bias
