"""The feed-forward network in training, where a kernel does it: the same function and gradients, and less is kept."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from seqloom.native.library import describe
from seqloom.nn.feedforward import FeedForward

NATIVE = ["relu", "gelu", "gelu-tanh", "silu", "squared-relu"]


def differentiate(layer, x, grad):
    """What comes out, and the gradients by x and all weights."""
    x = x.detach().requires_grad_()
    out = layer(x)
    out.backward(grad.to(out.dtype))
    return out.detach(), x.grad, *(parameter.grad for parameter in layer.parameters())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 2100])
@pytest.mark.parametrize("activation", NATIVE)
def test_it_is_the_function_and_gradient_of_double_precision(activation, rows, bias):
    torch.manual_seed(0)
    layer, x = FeedForward(20, 100, activation, bias=bias), 3 * torch.randn(rows, 2, 20)
    exact, grad = copy.deepcopy(layer).double(), torch.randn(rows, 2, 20)
    for ours, theirs in zip(differentiate(layer, x, grad), differentiate(exact, x.double(), grad), strict=True):
        largest = float(theirs.abs().max()) if theirs.numel() else 0.0
        torch.testing.assert_close(ours.double(), theirs, rtol=0.0, atol=1e-5 * largest)


@pytest.mark.parametrize("activation", NATIVE)
def test_what_falls_out_falls_out_of_the_gradient(activation):
    """With the identity for both matrices, each coordinate goes through on its own: y = m f(x), ∂x = m f'(x)."""
    rate, x = 0.25, torch.rand(300, 64) + 0.5
    dropping, plain = (FeedForward(64, 64, activation, bias=False, dropout=p).train() for p in (rate, 0.0))
    for layer in (dropping, plain):
        nn.init.eye_(layer.expand.weight)
        nn.init.eye_(layer.contract.weight)
    torch.manual_seed(1)
    out, slope, *_ = differentiate(dropping, x, torch.ones_like(x))
    whole, whole_slope, *_ = differentiate(plain, x, torch.ones_like(x))
    kept = out != 0
    assert abs(float((~kept).float().mean()) - rate) < 0.02
    torch.testing.assert_close(out, torch.where(kept, whole / (1 - rate), 0.0))
    torch.testing.assert_close(slope, torch.where(kept, whole_slope / (1 - rate), 0.0))
    torch.manual_seed(1)
    assert torch.equal(dropping(x), out)
    assert not torch.equal(dropping(x), out)
    assert torch.equal(dropping.eval()(x), whole)


@pytest.mark.skipif(describe().level is None, reason=describe().reason)
def test_of_the_wide_rows_only_those_before_the_activation_are_kept():
    layer, x, kept = FeedForward(8, 32, "gelu", dropout=0.1).train(), torch.randn(50, 8), []

    def keep(tensor):
        kept.append(tuple(tensor.shape))
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(x)
    assert kept.count((50, 32)) == 1


@pytest.mark.parametrize("activation", NATIVE)
def test_what_is_no_number_is_not_hidden(activation):
    layer = FeedForward(4, 8, activation)
    assert layer(torch.full((1, 4), torch.nan)).isnan().all()


def test_frozen_weights_get_no_gradient():
    layer = FeedForward(4, 8, "relu")
    layer.expand.weight.requires_grad_(False)
    layer(torch.randn(3, 4)).sum().backward()
    assert layer.expand.weight.grad is None
    assert layer.contract.weight.grad is not None


def test_half_precision_is_left_to_pytorch():
    with torch.autocast("cpu", torch.bfloat16):
        assert FeedForward(4, 8, "relu")(torch.randn(3, 4)).dtype == torch.bfloat16
