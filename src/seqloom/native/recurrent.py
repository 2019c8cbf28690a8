"""LSTM and GRU over packed sequences: recurrent.c."""

import ctypes
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.native.library import find_kernels, threads
from seqloom.native.structures import Recurrence, RecurrenceGrads, check

Places = np.ndarray[Any, np.dtype[np.int64]]


class Lines(NamedTuple):
    """Where sequences stand in a packed batch, and from which end they are read."""

    starts: Places
    counts: Places
    order: Places
    """Longest first."""
    reverse: bool


class Recurred(NamedTuple):
    """What a layer computed."""

    gates: Tensor
    """(rows, 4 · hidden) of an LSTM: i, f, g, o; (rows, 3 · hidden) of a GRU: r, z, n."""
    kept: Tensor
    """(rows, hidden): c of an LSTM; of a GRU, the state's share of n."""
    out: Tensor
    """(rows, hidden): h."""


def recur_(gates: Tensor, weight: Tensor, bias: Tensor | None, initial: Tensor | None, lines: Lines) -> Recurred:
    """The states; contiguous `gates`, which hold the inputs' share, become the gates. A GRU has a `bias`."""
    hidden = weight.shape[1]
    found = Recurred(gates, gates.new_empty(len(gates), hidden), gates.new_empty(len(gates), hidden))
    given, _alive = _describe(found, weight, bias, initial, lines)
    check(find_kernels().recur(threads(), ctypes.addressof(given)))
    return found


def differentiate(
    found: Recurred,
    weight: Tensor,
    bias: Tensor | None,
    initial: Tensor | None,
    lines: Lines,
    grads: tuple[Tensor | None, Tensor | None],
) -> tuple[Tensor, Tensor, Tensor | None]:
    """From the gradients by h and by the last states: those by the gates, h before each token, those by `initial`.

    Of the gates, (rows, 4 · hidden): i, f, g, o of an LSTM; of a GRU the inputs' share of n, r, z, the state's share.
    """
    given, _alive = _describe(found, weight, bias, initial, lines)
    by_out, by_last = (None if grad is None else grad.contiguous() for grad in grads)
    changes, before = weight.new_empty(len(found.out), 4 * weight.shape[1]), torch.empty_like(found.out)
    initial_grad = None if initial is None else weight.new_empty(initial.shape)
    places = RecurrenceGrads(*map(_place, (by_out, by_last, changes, before, initial_grad)))
    check(find_kernels().differentiate_recurrence(threads(), ctypes.addressof(given), ctypes.addressof(places)))
    return changes, before, initial_grad


def _describe(
    found: Recurred, weight: Tensor, bias: Tensor | None, initial: Tensor | None, lines: Lines
) -> tuple[Recurrence, list[Any]]:
    """The layer as recurrent.c reads it, and what must live as long."""
    count, hidden = len(lines.starts), weight.shape[1]
    gates = len(weight) // max(hidden, 1)
    parts = 2 if gates == 4 else 1
    expected = {
        "gates": (found.gates, (int(lines.counts.sum()), gates * hidden)),
        "weight": (weight, (gates * hidden, hidden)),
        "bias": (bias, (hidden,)),
        "initial": (initial, (count, parts, hidden)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ShapeError(f"{name} has shape {tuple(tensor.shape)}, not {shape}")
    if gates not in (3, 4) or (gates == 3) != (bias is not None) or not found.gates.is_contiguous():
        raise TypeError("a recurrent kernel takes contiguous gates: four of an LSTM, or three of a GRU and a bias")
    places = [np.ascontiguousarray(array, np.int64) for array in lines[:3]]
    tensors = [None if tensor is None else tensor.contiguous() for tensor in (weight, bias, initial)]
    if any(tensor is not None and tensor.dtype is not torch.float32 for tensor in (*tensors, *found)):
        raise TypeError("a recurrent kernel takes float32")
    given = Recurrence(
        *(len(found.out), count, hidden, gates, lines.reverse),
        *(array.ctypes.data for array in places),
        *map(_place, (*tensors, *found)),
    )
    return given, [places, tensors]


def _place(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
