"""Parity with `nn.Conv1d` and `F.glu`."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.matching import mask_of
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.nn.convolution import GatedConvolution

DIM = 6
PADDING = {"forward": lambda k: (k - 1, 0), "backward": lambda k: (0, k - 1), "both": lambda k: ((k - 1) // 2, k // 2)}


def give_weights(theirs: nn.Conv1d, ours: GatedConvolution) -> None:
    weights = theirs.weight.transpose(1, 2).flatten(1).chunk(2)  # (2·out, in, k) → twice (out, k·in)
    with torch.no_grad():
        for linear, weight, bias in zip((ours.value, ours.gate), weights, theirs.bias.chunk(2), strict=True):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)


@pytest.mark.parametrize("lengths", [[5, 5], [6, 1, 3]], ids=str)
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("direction", PADDING)
def test_encoder(direction, kernel, lengths):
    """Padding of a row is zeros to a convolution: each layer of the peer is given it anew."""
    torch.manual_seed(0)
    layers = [GatedConvolution(DIM, DIM, kernel, direction) for _ in range(2)]
    ours = ConvolutionalEncoder(layers, None, model_dim=DIM, dropout=0.0)
    theirs = [nn.Conv1d(DIM, 2 * DIM, kernel) for _ in range(2)]
    for own, layer in zip(ours.layers, theirs, strict=True):
        give_weights(layer, own)
    mask = mask_of(lengths)
    x = torch.randn(*mask.shape, DIM, requires_grad=True)

    def convolve(layer: nn.Conv1d, h: Tensor) -> Tensor:
        padded = F.pad((h * mask[:, :, None]).transpose(1, 2), PADDING[direction](kernel))
        return F.glu(layer(padded), dim=1).transpose(1, 2)

    expected = x
    for layer in theirs:
        expected = (expected + convolve(layer, expected)) * math.sqrt(0.5)
    out = ours(x, mask).states
    torch.testing.assert_close(out[mask], expected[mask], rtol=1e-5, atol=1e-5)

    probe = torch.randn_like(out) * mask[:, :, None] / out.numel() ** 0.5
    for own, layer in zip(ours.layers, theirs, strict=True):
        parts = [own.value.weight, own.gate.weight, own.value.bias, own.gate.bias]
        mine = torch.autograd.grad((out * probe).sum(), [x, *parts], retain_graph=True)
        given, weight, bias = torch.autograd.grad(
            (expected * probe).sum(), [x, layer.weight, layer.bias], retain_graph=True
        )
        yours = (given, *weight.transpose(1, 2).flatten(1).chunk(2), *bias.chunk(2))
        torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-5)
