"""Linear layers in use: the formula of each precision, any size, row by row the same bits."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.native.block import PackedLinear
from seqloom.native.structures import PRECISIONS

pytestmark = pytest.mark.usefixtures("kernels")
every_precision = pytest.mark.parametrize("precision", PRECISIONS)
any_size = given(inputs=st.integers(1, 140), outputs=st.integers(1, 140), rows=st.integers(0, 14))
at_every_level = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def make_layer(inputs: int, outputs: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, bias and rows, each of another size."""
    weight = torch.randn(outputs, inputs) * torch.rand(outputs, 1) / inputs**0.5
    return weight, torch.randn(outputs), torch.randn(rows, inputs) * torch.rand(rows, 1) + torch.randn(rows, 1)


@pytest.mark.parametrize("rows", [*range(9), 13, 64, 500])
@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 63, 64, 65, 100, 1200])
@pytest.mark.parametrize("inputs", [1, 19, 300])
def test_a_product_of_any_size(rows: int, outputs: int, inputs: int) -> None:
    weight, bias, x = torch.randn(outputs, inputs), torch.randn(outputs), torch.randn(rows, inputs)
    torch.testing.assert_close(PackedLinear(weight, bias)(x), x @ weight.T + bias, atol=1e-4, rtol=1e-4)


@at_every_level
@any_size
def test_float32(inputs: int, outputs: int, rows: int, level: str) -> None:
    weight, bias, x = make_layer(inputs, outputs, rows)
    torch.testing.assert_close(PackedLinear(weight, bias)(x), x @ weight.T + bias, atol=1e-5, rtol=1e-5)


@at_every_level
@any_size
def test_bfloat16(inputs: int, outputs: int, rows: int, level: str) -> None:
    """The sums of the instruction, step by step: the second of two inputs before the first."""
    weight, bias, x = make_layer(inputs, outputs, rows)
    sums = bias.numpy()[None].repeat(rows, 0)
    order = [k for pair in range(0, inputs, 2) for k in (pair + 1, pair) if k < inputs]
    short = [t.bfloat16().double().numpy() for t in (x, weight)]
    for k in order:  # a product has 16 bits, a sum of it and a float32 of like size has at most 53: rounded once
        sums = (sums.astype(np.float64) + short[0][:, k : k + 1] * short[1][:, k]).astype(np.float32)
    assert torch.equal(PackedLinear(weight, bias, "bfloat16")(x), torch.from_numpy(sums))


@at_every_level
@any_size
def test_int8(inputs: int, outputs: int, rows: int, level: str) -> None:
    """Exact sums of integers: half an integer would show."""
    weight, bias, x = make_layer(inputs, outputs, rows)
    step, terms = multiply_int8(weight, bias, x)
    error = np.abs(PackedLinear(weight, bias, "int8")(x).double().numpy() - sum(terms))
    assert (error <= 0.4 * step + 1e-6 * sum(map(np.abs, terms))).all()


def multiply_int8(weight: Tensor, bias: Tensor, x: Tensor) -> tuple[np.ndarray, list[np.ndarray]]:
    """What one more in a sum of integers would change; and the terms of y_j = a_j s Σ u v + a_j l Σ v + b_j."""
    w, rows = weight.numpy(), x.numpy()
    a = np.abs(w).max(1) / np.float32(127)
    v = np.rint(w / a[:, None]).astype(np.int64)
    low, high = rows.min(1, initial=np.inf, keepdims=True), rows.max(1, initial=-np.inf, keepdims=True)
    if rows.shape[1] == 1:
        scale, steps = np.zeros_like(low), np.zeros_like(low)
    else:
        scale, steps = (high - low) / np.float32(255), np.float32(255) / (high - low)
    u = np.rint((rows - low).astype(np.float64) * steps).astype(np.int64)
    assert u.size == 0 or (u.min() >= 0 and u.max() <= 255)
    sums = u @ v.T
    scale, low, a = scale.astype(np.float64), low.astype(np.float64), a.astype(np.float64)
    return a * scale, [a * scale * sums, a * low * v.sum(1), bias.double().numpy()]


@pytest.mark.parametrize(("precision", "tolerance"), [("bfloat16", 2**-8), ("int8", 1 / 254)])
def test_what_rounding_costs(precision: str, tolerance: float, level: str) -> None:
    """Each input and each weight is off by half a step at most: of its own size, or of the range of its row."""
    weight, bias, x = make_layer(300, 100, 50)
    exact = x.double() @ weight.double().T + bias
    if precision == "int8":
        inputs, weights = (x.amax(1) - x.amin(1)) / 2, weight.abs().amax(1)
        bound = (x.abs().sum(1)[:, None] * weights + inputs[:, None] * weight.abs().sum(1)) * tolerance
    else:
        bound = (x.abs() @ weight.abs().T) * tolerance * 1.1
    found = PackedLinear(weight, bias, precision)(x)
    assert ((found - exact).abs() <= bound).all()
    assert ((found - exact).abs().mean() < bound.mean() / 10).all()  # errors of both signs cancel


@every_precision
def test_a_row_does_not_depend_on_its_neighbours_or_on_threads(precision: str, level: str) -> None:
    weight, bias, x = torch.randn(8000, 64), torch.randn(8000), torch.randn(600, 64)
    product = PackedLinear(weight, bias, precision)
    together = product(x)
    torch.set_num_threads(2)
    for count in (600, 64):
        assert torch.equal(product(x[:count]), together[:count])
    torch.set_num_threads(1)
    for count in (1, 2, 5, 6, 7):
        assert torch.equal(product(x[:count]), together[:count])
    x[3] = torch.nan
    assert torch.equal(product(x)[4:], together[4:])
    assert product(x)[3].isnan().all()


@every_precision
@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_stays_none(precision: str, odd: float, level: str) -> None:
    weight, bias, x = make_layer(37, 20, 9)
    clean = PackedLinear(weight, bias, precision)(x)
    x[4, 36] = odd
    spoiled = PackedLinear(weight, bias, precision)(x)
    assert not spoiled[4].isfinite().any()
    assert torch.equal(spoiled[[0, 1, 2, 3, 5, 8]], clean[[0, 1, 2, 3, 5, 8]])
    x[4, 36], weight[7, 3] = 0.0, odd
    spoiled = PackedLinear(weight, bias, precision)(x)
    assert not spoiled[:, 7].isfinite().any()
    assert spoiled[:, [*range(7), *range(8, 20)]].isfinite().all()


@every_precision
def test_rows_of_one_number_of_zeros_and_of_extremes(precision: str, level: str) -> None:
    """Where no input is rounded, or nothing but zero is multiplied, only the weights are."""
    weight, bias = torch.randn(20, 33), torch.randn(20)
    product, tolerance = PackedLinear(weight, bias, precision), {"float32": 1e-5, "bfloat16": 0.05, "int8": 0.05}
    x = torch.tensor([0.0, -0.0, 1.0, -3.0])[:, None].expand(4, 33)
    found = product(x)
    torch.testing.assert_close(found, x @ weight.T + bias, atol=10 * tolerance[precision], rtol=0.02)
    assert torch.equal(found[0], bias)
    assert torch.equal(PackedLinear(torch.zeros(20, 33), bias, precision)(torch.randn(1, 33))[0], bias)
    for size in (1e-30, 1e-37, 1e-44, 1e25):
        x = torch.randn(3, 33) * size
        assert (product(x) - (x @ weight.T + bias)).abs().max() <= tolerance[precision] * max(1.0, 33 * size)


@every_precision
def test_a_product_has_any_shape_and_strides(precision: str) -> None:
    weight, x = torch.randn(7, 5).T, torch.randn(3, 2, 7).transpose(0, 1)
    packed = PackedLinear(weight, None, precision)
    assert torch.equal(packed(x), PackedLinear(weight.contiguous(), None, precision)(x.contiguous()))
    torch.testing.assert_close(packed(x), x @ weight.T, rtol=0.1, atol=0.1)
    assert (packed.inputs, packed.outputs) == (7, 5)
    assert packed(torch.zeros(2, 0, 7)).shape == (2, 0, 5)
    with pytest.raises(ShapeError, match="x has rows of 6 numbers but the layer takes 7"):
        packed(torch.zeros(1, 6))


@every_precision
def test_a_packed_layer_is_a_copy(precision: str) -> None:
    weight, bias, x = torch.randn(5, 7), torch.randn(5), torch.randn(2, 7)
    packed = PackedLinear(weight, bias, precision)
    before = packed(x)
    weight.zero_()
    bias.zero_()
    assert torch.equal(packed(x), before)
    assert torch.equal(copy.deepcopy(packed)(x), before)


def test_the_largest_sums_of_integers_are_exact(level: str) -> None:
    """65,536 products of 255 and 127, and no more: 32 bits hold them."""
    weight, x = torch.ones(3, 65_536), torch.ones(2, 65_536)
    weight[1], x[:, 0] = -1.0, 0.0  # every other number is 255 steps above the least
    found = PackedLinear(weight, None, "int8")(x)
    torch.testing.assert_close(found, torch.tensor([[65_535.0, -65_535.0, 65_535.0]] * 2))
    with pytest.raises(ShapeError, match="a sum of 65537 products of bytes may not fit"):
        PackedLinear(torch.ones(1, 65_537), None, "int8")


def test_what_is_not_float32_is_refused() -> None:
    with pytest.raises(TypeError, match="float64"):
        PackedLinear(torch.zeros(2, 2).double(), None)
