"""Encoders of each family over padded rows."""

import math

import torch
from torch import Tensor, nn

from seqloom.encoders.base import Encoder
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.errors import RunError
from seqloom.hub.onnx.attention import encode_blocks
from seqloom.hub.onnx.recurrence import TracedCell
from seqloom.hub.onnx.rows import reverse_rows, shift
from seqloom.nn.positions import PositionEncoding
from seqloom.nn.transformer import Stack


class PaddedEncoder(nn.Module):
    """An encoder on rectangles; what stands in the padding of its output is 0."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        ways = [way.cell for layer in encoder.layers for way in layer] if isinstance(encoder, RecurrentEncoder) else []
        self.cells = nn.ModuleList(TracedCell(cell) for cell in ways)

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
                    states = (states + layer._gate(near)) * math.sqrt(0.5)
            case other:
                raise RunError(f"there is no ONNX graph for an encoder of the class {type(other).__name__}")
        padded: Tensor = states * real
        return padded

    def _recur(self, encoder: RecurrentEncoder, x: Tensor, mask: Tensor) -> Tensor:
        cells = iter(self.cells)
        for index, ways in enumerate(encoder.layers):
            assert isinstance(ways, Stack)
            outs = []
            for way in ways:
                cell = next(cells)
                start = x.new_zeros(x.shape[0], way.num_parts, way.hidden_dim)
                out, _ = cell(reverse_rows(x, mask) if way.reverse else x, start)
                outs.append(reverse_rows(out, mask) if way.reverse else out)
            both = torch.cat(outs, dim=-1)
            x = x + both if encoder.residual and index else both
        return x


def _encode_positions(encoding: PositionEncoding | None, x: Tensor, mask: Tensor) -> Tensor:
    if encoding is None:
        return x
    positions = torch.arange(x.shape[1]).expand(x.shape[0], -1)
    return encoding.encode_input(x, positions, mask.sum(1, keepdim=True).expand(-1, x.shape[1]))
