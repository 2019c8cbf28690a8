"""Recurrent layers as the operators that ONNX has for them.

The tracer sees a layer as one operation with known shapes; in the graph it becomes LSTM, GRU or RNN. ONNX orders the
gates i, o, f, g (LSTM) and z, r, n (GRU), where PyTorch has i, f, g, o and r, z, n.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


class TracedCell(nn.Module):
    """A layer in one direction, its weights in the order that ONNX wants."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        assert isinstance(cell, nn.RNNBase)
        self.kind, self.hidden = type(cell).__name__, cell.hidden_size
        weight, recurrence, *biases = (self._arrange(parameter) for parameter in cell.parameters())
        self.register_buffer("weight", weight[None])
        self.register_buffer("recurrence", recurrence[None])
        self.register_buffer("bias", torch.cat(biases)[None])

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The output at each position (B, T, H), and the last state (B, parts, H): h, and the memory c of an LSTM."""
        h, c = state[:, :1].transpose(0, 1), state[:, -1:].transpose(0, 1)
        inputs = (x.transpose(0, 1), self.weight, self.recurrence, self.bias, h, c)
        out, h, c = torch.ops.seqloom.recurrence(self.kind, *inputs, self.hidden)
        last = torch.cat([h, c]) if self.kind == "LSTM" else h
        return out[:, 0].transpose(0, 1), last.transpose(0, 1)

    def _arrange(self, rows: Tensor) -> Tensor:
        order = _ORDER[self.kind]
        parts = rows.detach().chunk(len(order))
        return torch.cat([parts[number] for number in order])


@torch.library.custom_op("seqloom::recurrence", mutates_args=())
def _recur(
    kind: str, x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, h: Tensor, c: Tensor, hidden: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (T, 1, B, H) and the last state; `c` counts for an LSTM only."""
    h, c, outs = h[0], c[0], []
    of_input, of_state = bias[0].chunk(2)
    for token in x:
        given, kept = F.linear(token, weight[0], of_input), F.linear(h, recurrence[0], of_state)
        match kind:
            case "LSTM":
                i, o, f, g = (given + kept).chunk(4, dim=-1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            case "GRU":
                (gz, gr, gn), (kz, kr, kn) = given.chunk(3, dim=-1), kept.chunk(3, dim=-1)
                z, r = (gz + kz).sigmoid(), (gr + kr).sigmoid()
                h = (1 - z) * (gn + r * kn).tanh() + z * h
            case _:
                h = (given + kept).tanh()
        outs.append(h)
    return torch.stack(outs).unsqueeze(1), h[None].clone(), c[None].clone()


@_recur.register_fake
def _(
    kind: str, x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, h: Tensor, c: Tensor, hidden: int
) -> tuple[Tensor, Tensor, Tensor]:
    state = x.new_empty(1, x.shape[1], hidden)
    return x.new_empty(x.shape[0], 1, x.shape[1], hidden), state, torch.empty_like(state)


def list_translations(op: Any) -> dict[Any, Any]:
    """The operators that stand for this operation, from the operator set `op` of onnxscript."""

    def recur(kind: str, x: Any, weight: Any, recurrence: Any, bias: Any, h: Any, c: Any, hidden: int) -> Any:
        match kind:
            case "LSTM":
                return op.LSTM(x, weight, recurrence, bias, None, h, c, hidden_size=hidden)
            case "GRU":
                out, h = op.GRU(x, weight, recurrence, bias, None, h, hidden_size=hidden, linear_before_reset=1)
            case _:
                out, h = op.RNN(x, weight, recurrence, bias, None, h, hidden_size=hidden)
        return out, h, h

    return {torch.ops.seqloom.recurrence.default: recur}
