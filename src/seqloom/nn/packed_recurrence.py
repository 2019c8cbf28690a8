"""LSTM and GRU over packed sequences, by a kernel: native/recurrent.c.

The inputs' share of all gates is one product over all tokens, and so is the gradient of each matrix. Between them, a
kernel goes through time: at each step, one product with U for the lines that still have a token, and their gates. For
the gradient the gates are kept, and one number more for each unit: c of an LSTM, and of a GRU the state's share of n.
PyTorch's cells want rectangles, or sequences laid out by time, and sum up the gradient of U step by step. Within an
autocast to bfloat16, the products over all tokens are computed in it; what goes through time stays in float32.

The order of the gates is PyTorch's: i, f, g, o of an LSTM; r, z, n of a GRU, n = tanh(W x + b + r ⊙ (U h + b′)).
"""

from typing import Any, TypeGuard

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.native import recurrent as native
from seqloom.native.library import in_bfloat16, is_plain, serves
from seqloom.nn.packing import Packing

_GATES = {nn.LSTM: 4, nn.GRU: 3}


def has_kernel(cell: nn.Module, *tensors: Tensor | None) -> TypeGuard[nn.RNNBase]:
    """Whether a kernel computes exactly what this cell does, given these tensors: one layer in one direction."""
    if not any(is_plain(cell, kind) for kind in _GATES):
        return False
    assert isinstance(cell, nn.RNNBase)
    one = cell.num_layers == 1 and not cell.bidirectional and not cell.proj_size
    return one and serves(*tensors, *cell._parameters.values(), mixed=True)


def recur(
    cell: nn.RNNBase,
    x: Float[Tensor, "N D"],
    packing: Packing,
    initial: Float[Tensor, "B P H"] | None,
    *,
    reverse: bool,
) -> tuple[Float[Tensor, "N H"], Float[Tensor, "B P H"]]:
    """The states of packed sequences, and those after the last token of each."""
    order = np.argsort(-packing.counts, kind="stable")
    lines = native.Lines(packing.starts, packing.counts, order, reverse)
    weights = cell.weight_ih_l0, cell.weight_hh_l0, *((cell.bias_ih_l0, cell.bias_hh_l0) if cell.bias else (None, None))
    initial = None if initial is None else initial.float()
    out, last = _Recur.apply(x, *weights, initial, lines)  # type: ignore[no-untyped-call]
    return out, last


class _Recur(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "N D"],
        weight: Float[Tensor, "G D"],
        recurrent: Float[Tensor, "G H"],
        bias: Float[Tensor, "G"] | None,
        recurrent_bias: Float[Tensor, "G"] | None,
        initial: Float[Tensor, "B P H"] | None,
        lines: native.Lines,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)  # mostly nobody asks for the last states
        hidden = recurrent.shape[1]
        lstm = len(recurrent) == 4 * hidden
        inner, kind = None, torch.bfloat16 if in_bfloat16() else x.dtype
        x, weight = x.to(kind), weight.to(kind)
        if bias is None or recurrent_bias is None:
            gates = x @ weight.T
        else:
            outer = recurrent_bias.clone()
            if not lstm:
                outer[2 * hidden :] = 0.0
            gates = torch.addmm((bias + outer).to(kind), x, weight.T)
        if not lstm:
            inner = recurrent.new_zeros(hidden) if recurrent_bias is None else recurrent_bias[2 * hidden :]
        found = native.recur_(gates.to(recurrent.dtype), recurrent, inner, initial, lines)
        ctx.save_for_backward(x, weight, recurrent, inner, initial, *found)
        ctx.lines = lines
        return found.out, _find_last(found, initial, lines, lstm=lstm)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, last_grad: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight, recurrent, inner, initial, *found = ctx.saved_tensors
        hidden, wanted = recurrent.shape[1], ctx.needs_input_grad
        changes, before, initial_grad = native.differentiate(
            native.Recurred(*found), recurrent, inner, initial, ctx.lines, (grad, last_grad)
        )
        lstm = inner is None
        short, before = changes.to(x.dtype), before.to(x.dtype)
        outer, own = (short, short) if lstm else (short[:, : 3 * hidden], short[:, hidden:])
        # The kernel gives a GRU's gradients in the order n, r, z, n, so that both shares are side by side.
        rows = weight if lstm else weight.roll(hidden, 0)
        turn = 0 if lstm else -hidden
        sums = changes.sum(0) if wanted[3] or wanted[4] else changes
        return (
            outer @ rows if wanted[0] else None,
            (outer.T @ x).roll(turn, 0) if wanted[1] else None,
            own.T @ before if wanted[2] else None,
            (sums if lstm else sums[: 3 * hidden].roll(turn, 0)) if wanted[3] else None,
            (sums.clone() if lstm else sums[hidden:].clone()) if wanted[4] else None,
            initial_grad if wanted[5] else None,
            None,
        )


def _find_last(found: native.Recurred, initial: Tensor | None, lines: native.Lines, *, lstm: bool) -> Tensor:
    """The state after the last token of each line, which for an empty one is the initial state."""
    starts, counts = lines.starts, lines.counts
    hidden, some = found.out.shape[1], np.flatnonzero(counts)
    last = found.out.new_zeros(len(starts), 2 if lstm else 1, hidden) if initial is None else initial.clone()
    rows = torch.from_numpy((starts if lines.reverse else starts + counts - 1)[some])
    parts = [found.out, found.kept] if lstm else [found.out]
    last[torch.from_numpy(some)] = torch.stack([part[rows] for part in parts], dim=1)
    return last
