"""What a layer of each family costs, as sequences and vectors grow: multiplications, waiting, memory and time.

                                 multiplications       one after another
    self-attention               2n²d                  1          (Vaswani et al. 2017, table 1: n²·d)
    its four matrices            4nd²                  1          (which that table leaves out)
    attention to r positions     2·⌈n/r⌉·r·(2r − 1)·d  1          (r·n·d; here in blocks, nn/efficient_attention.py)
    LSTM                         8nd²                  n          (n·d²)
    convolution of width k       knd²                  1          (k·n·d²)

Multiplications are counted by running the layers in their open form, in float64: a counter sees nothing of a fused
recurrence, and not all of fused attention. Exponents are fitted to the counts. Memory is what a layer keeps for its
gradient. Time is that of the layers as they are used, on this machine, in float32 on one thread, forwards only.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from seqloom.config.base import Positive
from seqloom.lab.chart import Axis, Lines, Series
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.nn.attention import attend
from seqloom.nn.convolution import Convolution
from seqloom.nn.efficient_attention import attend_window
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.packing import Packing
from seqloom.nn.recurrent import RecurrentLayer

_WINDOW, _KERNEL, _COUNTED_WINDOW = 64, 3, 4
_LAYERS = ("self-attention", "window attention", "lstm", "convolution")
_FORMULAS: dict[str, Callable[[int, int], int]] = {
    "self-attention": lambda n, d: 2 * n * n * d,
    "window attention": lambda n, d: 2 * -(-n // _COUNTED_WINDOW) * _COUNTED_WINDOW * (2 * _COUNTED_WINDOW - 1) * d,
    "lstm": lambda n, d: 8 * n * d * d,
    "convolution": lambda n, d: _KERNEL * n * d * d,
}
"""Multiplications, without the matrices of attention."""
_THEORY = {"self-attention": (2, 1), "window attention": (1, 1), "lstm": (1, 2), "convolution": (1, 2)}
"""The exponents of n and of d."""
_NOTED = (20, 70, 1024)  # the lengths and the width that lecture notes call usual


def _check_several(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if len(sizes) < 2:
        raise ValueError("an exponent is fitted to at least two sizes")
    return sizes


Several = Annotated[tuple[Positive, ...], AfterValidator(_check_several)]


class CostParameters(Parameters):
    """Lengths and widths."""

    counted_lengths: Several = (16, 32, 64, 128)
    """Lengths at which multiplications are counted."""
    counted_dims: Several = (16, 32, 64, 128)
    """Widths at which they are counted."""
    lengths: Several = (16, 32, 64, 128, 256, 512, 1024, 2048)
    """Lengths at which time and memory are measured."""
    dim: Positive = 1024
    """The width at which they are measured over lengths."""
    dims: Several = (64, 128, 256, 512, 1024)
    """Widths at which time is measured at one length."""
    length: Positive = 512
    """That length."""
    repetitions: Positive = 5
    """How often each time is taken; the median counts."""


class Cost(Experiment[CostParameters]):
    """Counted multiplications, memory and time."""

    name = "cost"
    teaches = (
        "Attention is quadratic in length and recurrence in width, so attention is the cheaper one as long as "
        "sequences are shorter than vectors are wide; and only recurrence must wait for itself."
    )
    parameters = CostParameters
    smallest: ClassVar = {
        "counted_lengths": (16, 32, 64),
        "counted_dims": (8, 16, 32),
        "lengths": (16, 64),
        "dim": 32,
        "dims": (16, 32),
        "length": 32,
        "repetitions": 1,
    }

    def list_units(self, parameters: CostParameters) -> Sequence[str]:
        """Each kind of layer."""
        return _LAYERS

    def measure(self, parameters: CostParameters, unit: str, seed: int, folder: Path) -> Found:
        """Counts over lengths and widths, and memory and time."""
        lengths, dims = parameters.counted_lengths, parameters.counted_dims
        counts = [[_count(unit, n, d) for d in dims] for n in lengths]
        slowest = [_take_time(unit, n, parameters.dim, parameters.repetitions) for n in parameters.lengths]
        return {
            "multiplications": [[count for count, _ in row] for row in counts],
            "products": [[products for _, products in row] for row in counts],
            "exponent of n": _fit(lengths, [row[-1][0] for row in counts]),
            "exponent of d": _fit(dims, [count for count, _ in counts[-1]]),
            "memory": [_measure_memory(unit, n, parameters.dim) for n in parameters.lengths],
            "seconds over n": slowest,
            "machine": f"{os.cpu_count()} cores, PyTorch {torch.__version__}",
            "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "seconds over d": [_take_time(unit, parameters.length, d, parameters.repetitions) for d in parameters.dims],
        }

    def report(self, parameters: CostParameters, results: Results) -> Report:
        """Tables of counts, exponents and times; curves over length."""
        found = {unit: results.first(unit) for unit in _LAYERS}
        lengths, dims = parameters.counted_lengths, parameters.counted_dims
        n, d = lengths[-1], dims[-1]
        exact = all(
            found[unit]["multiplications"][i][j] == _FORMULAS[unit](length, dim)
            for unit in _LAYERS
            for i, length in enumerate(lengths)
            for j, dim in enumerate(dims)
        )
        rows = [
            [
                unit,
                f"{one['multiplications'][-1][-1]:,}",
                f"{_FORMULAS[unit](n, d):,}",
                f"{one['exponent of n']:.2f}",
                f"{one['exponent of d']:.2f}",
                f"{one['products'][0][-1]} → {one['products'][-1][-1]}",
            ]
            for unit, one in found.items()
        ]
        head = ["layer", f"counted, n = d = {n}" if n == d else f"counted, n = {n}, d = {d}", "formula"]
        head += ["grows as n^", "grows as d^", f"products, n = {lengths[0]} → {n}"]
        timed = [
            [
                unit,
                *(
                    f"{1e3 * _list_times(results, unit, 'seconds over n')[at]:.2f}"
                    for at, _ in enumerate(parameters.lengths)
                ),
            ]
            for unit in _LAYERS
        ]
        kept = [
            [unit, *(f"{one['memory'][at] / 1e6:.1f}" for at, _ in enumerate(parameters.lengths))]
            for unit, one in found.items()
        ]
        over = ["", *(f"{length:,}" for length in parameters.lengths)]
        speed = [
            [
                unit,
                f"{_fit(parameters.lengths, _list_times(results, unit, 'seconds over n')):.2f}",
                f"{_fit(parameters.dims, _list_times(results, unit, 'seconds over d')):.2f}",
            ]
            for unit in _LAYERS
        ]
        tables = [
            Table("Multiplications of a layer, without attention's own matrices", head, rows),
            Table(f"Milliseconds on this machine, d = {parameters.dim:,}", over, timed),
            Table(f"Megabytes kept for the gradient, d = {parameters.dim:,}", over, kept),
            Table(
                "Exponents of the time, fitted",
                ["", f"n, at d = {parameters.dim:,}", f"d, at n = {parameters.length:,}"],
                speed,
            ),
        ]
        return Report(
            tables,
            self._draw(parameters, results, found),
            self._claim(found, exact),
            "Curves over the length of a sequence: multiplications, memory and time of each layer",
            columns=3,
            notes=[_say_conditions(results)],
        )

    def _claim(self, found: dict[str, Found], exact: bool) -> list[Claim]:
        off = max(
            abs(found[unit][f"exponent of {letter}"] - exponent)
            for unit, exponents in _THEORY.items()
            for letter, exponent in zip("nd", exponents, strict=True)
        )
        low, high, wide = _NOTED
        core, matrices, lstm = 2 * high * high * wide, 4 * high * wide * wide, 8 * high * wide * wide
        convolution = _KERNEL * high * wide * wide
        growth = {unit: one["products"][-1][-1] / one["products"][0][-1] for unit, one in found.items()}
        return [
            Claim("counted multiplications equal the formulas", exact, "every one of them" if exact else "not all"),
            Claim(
                "a layer costs n²d, rnd, nd² and knd² multiplications",
                off < 0.05,
                f"fitted exponents are at most {off:.3f} away from 2 and 1, 1 and 1, 1 and 2, 1 and 2",
            ),
            Claim(
                "only a recurrence computes one position after the other",
                growth["lstm"] > 2 and max(v for unit, v in growth.items() if unit != "lstm") == 1,
                ", ".join(f"{unit}: {value:.1f} times the products" for unit, value in growth.items()),
            ),
            Claim(
                f"self-attention is cheap for usual sequences (n = {low} to {high}, d = {wide:,})",
                core + matrices < lstm,
                f"at n = {high}: attention {core / 1e6:.0f} million, its matrices {matrices / 1e6:.0f} million, "
                f"LSTM {lstm / 1e6:.0f} million, convolution {convolution / 1e6:.0f} million; with its matrices it "
                f"costs as much as an LSTM from n = 2d = {2 * wide:,} on",
            ),
        ]

    def _draw(self, parameters: CostParameters, results: Results, found: dict[str, Found]) -> list[Lines]:
        lengths, wide = parameters.lengths, parameters.dim
        length = Axis("length n", log=True, ticks=tuple(float(one) for one in lengths[:: 2 if len(lengths) > 5 else 1]))
        bands = [(20.0, 70.0, "usual: 20–70")] if lengths[0] <= 20 and lengths[-1] >= 70 else []
        curves: dict[str, Callable[[int], float]] = {
            "self-attention": lambda n: 2.0 * n * n * wide,
            f"window attention, {_WINDOW}": lambda n: 2.0 * n * min(n, 2 * _WINDOW) * wide,
            "lstm": lambda n: 8.0 * n * wide * wide,
            f"convolution, {_KERNEL}": lambda n: _KERNEL * n * wide * wide,
            "self-attention with its matrices": lambda n: 2.0 * n * n * wide + 4.0 * n * wide * wide,
        }
        counts = [Series(name, [(float(n), curve(n)) for n in lengths]) for name, curve in curves.items()]
        memory = [
            Series(unit, [(float(n), one["memory"][at] / 1e6) for at, n in enumerate(lengths)])
            for unit, one in found.items()
        ]
        times = [
            Series(
                unit,
                [(float(n), 1e3 * _list_times(results, unit, "seconds over n")[at]) for at, n in enumerate(lengths)],
            )
            for unit in _LAYERS
        ]
        return [
            Lines(f"by the formulas, d = {wide:,}", length, Axis("multiplications", log=True), counts, bands),
            Lines(f"kept for the gradient, d = {wide:,}", length, Axis("megabytes", log=True), memory, bands),
            Lines(f"time on this machine, d = {wide:,}", length, Axis("milliseconds", log=True), times, bands),
        ]


def _say_conditions(results: Results) -> str:
    """How times were taken, and what else the machine did meanwhile."""
    loads = [one["load"] for unit in _LAYERS for one in results[unit] if one["load"] is not None]
    load = f", with a load of {min(loads):.1f} to {max(loads):.1f} (1.0 is this experiment alone)" if loads else ""
    machine = results.first(_LAYERS[0])["machine"]
    return (
        f"Times are medians, on one thread, forwards only, in float32, on {machine}{load}. "
        "They are shown, and nothing is concluded from them."
    )


def _list_times(results: Results, unit: str, key: str) -> list[float]:
    """The median over all seeds."""
    return [statistics.median(times) for times in zip(*(found[key] for found in results[unit]), strict=True)]


def _fit(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    return float(statistics.linear_regression(x, y).slope)


def _build(
    unit: str, length: int, dim: int, *, core: bool, kind: torch.dtype
) -> tuple[Callable[[], Tensor], list[nn.Parameter]]:
    """A layer on random vectors, and its weights; with `core`, what attention does with queries, keys and values."""
    x, packing = torch.randn(length, dim, dtype=kind), Packing(torch.ones(1, length, dtype=torch.bool))
    query, key, value = torch.randn(3, 1, 1, length, dim, dtype=kind)
    module: nn.Module
    match unit:
        case "self-attention" if core:
            return lambda: attend(query, key, value), []
        case "window attention" if core:
            return lambda: attend_window(query, key, value, None, window=_COUNTED_WINDOW, causal=True), []
        case "self-attention":
            module = SelfAttention(dim, max(1, dim // 64))
        case "window attention":
            module = SelfAttention(dim, max(1, dim // 64), window=_WINDOW, causal=True)
        case "lstm":
            module = RecurrentLayer("lstm", dim, dim)
        case _:
            module = Convolution(dim, dim, _KERNEL, "forward")
    module = module.to(kind)
    x.requires_grad_()
    return lambda: module(x, packing), [*module.parameters()]


def _count(unit: str, length: int, dim: int) -> tuple[int, int]:
    """Multiplications, and how many products of matrices they are done in."""
    run, _ = _build(unit, length, dim, core=True, kind=torch.float64)
    with FlopCounterMode(display=False) as counter, _count_products() as products:
        run()
    return counter.get_total_flops() // 2, products[0]


@contextmanager
def _count_products() -> Iterator[list[int]]:
    """How many products of matrices are computed inside the block."""
    count = [0]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            count[0] += any(name in str(function) for name in ("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm"))
            return function(*args, **(kwargs or {}))

    with Watch():  # type: ignore[no-untyped-call]
        yield count


def _measure_memory(unit: str, length: int, dim: int) -> int:
    """The bytes of what a layer keeps for its gradient, besides its weights and its input."""
    run, weights = _build(unit, length, dim, core=False, kind=torch.float32)
    known, kept = {weight.untyped_storage().data_ptr() for weight in weights}, dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in known and not (tensor.is_leaf and tensor.requires_grad):
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = run()
    del out
    return sum(kept.values())


@torch.no_grad()
def _take_time(unit: str, length: int, dim: int, repetitions: int) -> float:
    run, _ = _build(unit, length, dim, core=False, kind=torch.float32)
    taken = []
    run()
    for _ in range(repetitions):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


EXPERIMENT = Cost()
