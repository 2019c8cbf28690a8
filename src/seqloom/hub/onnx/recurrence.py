"""Recurrent layers as the operators that ONNX has for them.

To the tracer a layer is one operation with known shapes; in the graph it is LSTM, GRU or RNN. ONNX orders the gates
i, o, f, g (LSTM) and z, r, n (GRU), where PyTorch has i, f, g, o and r, z, n.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ORDER = {nn.LSTM: (0, 3, 1, 2), nn.GRU: (1, 0, 2), nn.RNN: (0,)}


class TracedCell(nn.Module):
    """A layer in one direction, its weights in the order that ONNX wants."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        assert isinstance(cell, nn.RNNBase)
        self.kind, self.hidden = type(cell), cell.hidden_size
        weight, recurrence, *biases = (self._arrange(parameter) for parameter in cell.parameters())
        self.register_buffer("weight", weight[None])
        self.register_buffer("recurrence", recurrence[None])
        self.register_buffer("bias", torch.cat(biases)[None])

    @property
    def num_parts(self) -> int:
        """Of a state: h, and the memory c of an LSTM."""
        return 2 if self.kind is nn.LSTM else 1

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The output at each position (B, T, H), and the last state (B, parts, H)."""
        start = state.transpose(0, 1)  # (parts, B, H)
        inputs = (x.transpose(0, 1), self.weight, self.recurrence, self.bias)
        if self.kind is nn.LSTM:
            out, last, memory = torch.ops.seqloom.lstm(*inputs, start[:1], start[1:], self.hidden)
            return out[:, 0].transpose(0, 1), torch.cat([last, memory]).transpose(0, 1)
        run = torch.ops.seqloom.gru if self.kind is nn.GRU else torch.ops.seqloom.rnn
        out, last = run(*inputs, start, self.hidden)
        return out[:, 0].transpose(0, 1), last.transpose(0, 1)

    def _arrange(self, rows: Tensor) -> Tensor:
        order = _ORDER[self.kind]
        parts = rows.detach().chunk(len(order))
        return torch.cat([parts[number] for number in order])


def _make_up(x: Tensor, hidden: int) -> tuple[Tensor, Tensor]:
    """The shapes of an output and a state."""
    return x.new_empty(x.shape[0], 1, x.shape[1], hidden), x.new_empty(1, x.shape[1], hidden)


def _unroll(
    x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor
) -> Iterator[tuple[Tensor, Callable[[Tensor], Tensor]]]:
    """For each token what it gives to the gates, and what a state gives to them."""
    of_input, of_state = bias[0].chunk(2)
    for token in x:
        yield F.linear(token, weight[0], of_input), lambda h: F.linear(h, recurrence[0], of_state)


@torch.library.custom_op("seqloom::lstm", mutates_args=())
def _lstm(
    x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, first: Tensor, memory: Tensor, hidden: int
) -> tuple[Tensor, Tensor, Tensor]:
    h, c, outs = first[0], memory[0], []
    for given, kept in _unroll(x, weight, recurrence, bias):
        i, o, f, g = (given + kept(h)).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outs.append(h)
    return torch.stack(outs).unsqueeze(1), h[None].clone(), c[None]


@_lstm.register_fake
def _(
    x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, first: Tensor, memory: Tensor, hidden: int
) -> tuple[Tensor, Tensor, Tensor]:
    out, last = _make_up(x, hidden)
    return out, last, torch.empty_like(last)


@torch.library.custom_op("seqloom::gru", mutates_args=())
def _gru(
    x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, first: Tensor, hidden: int
) -> tuple[Tensor, Tensor]:
    h, outs = first[0], []
    for given, kept in _unroll(x, weight, recurrence, bias):
        (gz, gr, gn), (kz, kr, kn) = given.chunk(3, dim=-1), kept(h).chunk(3, dim=-1)
        z, r = (gz + kz).sigmoid(), (gr + kr).sigmoid()
        h = (1 - z) * (gn + r * kn).tanh() + z * h
        outs.append(h)
    return torch.stack(outs).unsqueeze(1), h[None].clone()


@_gru.register_fake
def _(x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, first: Tensor, hidden: int) -> tuple[Tensor, Tensor]:
    return _make_up(x, hidden)


@torch.library.custom_op("seqloom::rnn", mutates_args=())
def _rnn(
    x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, first: Tensor, hidden: int
) -> tuple[Tensor, Tensor]:
    h, outs = first[0], []
    for given, kept in _unroll(x, weight, recurrence, bias):
        h = (given + kept(h)).tanh()
        outs.append(h)
    return torch.stack(outs).unsqueeze(1), h[None].clone()


@_rnn.register_fake
def _(x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, first: Tensor, hidden: int) -> tuple[Tensor, Tensor]:
    return _make_up(x, hidden)


def list_translations(op: Any) -> dict[Any, Any]:
    """The operators that stand for these operations, by the operator set `op` of onnxscript."""

    def lstm(x: Any, weight: Any, recurrence: Any, bias: Any, first: Any, memory: Any, hidden: int) -> Any:
        return op.LSTM(x, weight, recurrence, bias, None, first, memory, hidden_size=hidden)

    def gru(x: Any, weight: Any, recurrence: Any, bias: Any, first: Any, hidden: int) -> Any:
        return op.GRU(x, weight, recurrence, bias, None, first, hidden_size=hidden, linear_before_reset=1)

    def rnn(x: Any, weight: Any, recurrence: Any, bias: Any, first: Any, hidden: int) -> Any:
        return op.RNN(x, weight, recurrence, bias, None, first, hidden_size=hidden)

    ops = torch.ops.seqloom
    return {ops.lstm.default: lstm, ops.gru.default: gru, ops.rnn.default: rnn}
