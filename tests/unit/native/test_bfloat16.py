"""Kernels that take and give bfloat16 compute in float32, and round once: the same bits as casts around them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.native import structures
from seqloom.native.attention import AttentionPlan, attend, differentiate
from seqloom.native.library import (
    activate,
    add_dropped,
    cross_entropy_,
    differentiate_activation_,
    differentiate_norm,
    drop,
    drop_short,
    normalise_rows,
)

pytestmark = pytest.mark.usefixtures("level")
WIDTHS = [1, 7, 16, 301]
ODD = [0.0, -0.0, 1e-30, -1e-40, 50.0, -50.0, 1e30, -1e30, torch.inf, -torch.inf, torch.nan]


def make_plan(counts: list[int], sees: str = "everything", normalised: bool = False) -> AttentionPlan:
    """Two heads of eight numbers, with one key-value head and dropout."""
    lengths = np.array(counts, np.int64)
    starts = np.cumsum(lengths) - lengths
    return AttentionPlan(starts, lengths, starts, lengths, 2, 1, 8, sees, normalised, None, 0.2, 3)


def draw(*shape: int) -> Tensor:
    """Numbers of bfloat16, odd ones among them."""
    numbers = 3.0 * torch.randn(*shape)
    numbers.view(-1)[: len(ODD)] = torch.tensor(ODD)[: numbers.numel()]
    return numbers.bfloat16()


def assert_same(found: Tensor, expected: Tensor) -> None:
    assert found.dtype is expected.dtype
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("rows", [0, 1, 70])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", structures.ACTIVATIONS)
def test_activations(kind: str, width: int, rows: int) -> None:
    h, grad, bias, how = draw(rows, width), draw(rows, width), torch.randn(width), (kind, 0.3, 99)
    assert_same(activate(h, bias, *how), activate(h.float(), bias, *how).bfloat16())
    wide = grad.float()
    expected = differentiate_activation_(h.float(), bias, wide, *how)
    found = differentiate_activation_(h, bias, grad, *how)
    assert_same(found[0], expected[0].bfloat16())
    assert_same(found[1], expected[1])
    assert_same(grad, wide.bfloat16())


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("count", [0, 1, 4095, 9000])
def test_what_is_dropped_and_added(count: int, rate: float) -> None:
    x, y = torch.randn(count), torch.randn(count).bfloat16()
    dropped = drop(y.float(), rate, 5) if rate else y.float()
    assert_same(add_dropped(x, y, rate, 5), x + dropped)
    assert_same(drop_short(x, rate, 5), (drop(x, rate, 5) if rate else x).bfloat16())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", WIDTHS)
def test_the_loss_and_its_gradient(size: int, smoothing: float) -> None:
    scores, bias, targets = (5.0 * torch.randn(9, size)).bfloat16(), torch.randn(size), torch.randint(size, (9,))
    wide = scores.float()
    assert_same(cross_entropy_(scores, bias, targets, smoothing), cross_entropy_(wide, bias, targets, smoothing))
    assert_same(scores, wide.bfloat16())


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("sees", structures.SEEN)
def test_attention(sees: str, normalised: bool) -> None:
    plan = make_plan([5, 0, 40, 1], sees, normalised)
    query, grad = torch.randn(46, 4 * 8).bfloat16(), torch.randn(46, 2 * 8).bfloat16()
    (out, normalisers), (wide, others) = attend(query, None, plan), attend(query.float(), None, plan)
    assert_same(out, wide.bfloat16())
    assert_same(normalisers, others)
    found, expected = (
        differentiate(given, None, normalisers, change, plan)[0]
        for given, change in ((query, grad), (query.float(), grad.float()))
    )
    assert_same(found, expected.bfloat16())


def test_attention_takes_rows_of_one_type() -> None:
    plan = make_plan([3])
    with pytest.raises(TypeError, match="rows of one type, float32 or bfloat16"):
        attend(torch.zeros(3, 16), torch.zeros(3, 16).bfloat16(), plan)


@pytest.mark.parametrize("rows", [1, 70])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shifted", [True, False])
def test_norms(shifted: bool, width: int, rows: int) -> None:
    x, grad, gain = torch.randn(rows, width) + 2.0, torch.randn(rows, width).bfloat16(), torch.randn(width)
    shift = torch.randn(width) if shifted else None
    exact = [None if t is None else t.double().requires_grad_() for t in (x, gain, shift)]
    size, epsilon = (width,), 1e-3
    if shifted:
        out = F.layer_norm(exact[0], size, exact[1], exact[2], epsilon)  # type: ignore[arg-type]
    else:
        out = F.rms_norm(exact[0], size, exact[1], epsilon)  # type: ignore[arg-type]
    out.backward(grad.double())  # type: ignore[no-untyped-call]
    found = normalise_rows(x, gain, shift, epsilon)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), out.detach(), rtol=2**-8, atol=1e-4)
    for mine, theirs in zip(differentiate_norm(x, gain, shift, epsilon, grad), exact, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert mine.dtype is torch.float32
            torch.testing.assert_close(mine.double(), theirs.grad, rtol=1e-4, atol=1e-4)


def test_norms_of_no_rows_have_no_gradient() -> None:
    gain = torch.ones(5)
    assert normalise_rows(torch.zeros(0, 5), gain, gain, 1e-5).shape == (0, 5)
    _, *grads = differentiate_norm(torch.zeros(0, 5), gain, gain, 1e-5, torch.zeros(0, 5).bfloat16())
    assert all(grad is not None and not grad.any() for grad in grads)
