"""Blocks whose products are bfloat16: the residual stream and all gradients are float32, with kernels in between."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from seqloom.native.library import has_bfloat16
from seqloom.nn.cross_entropy import linear_cross_entropy
from seqloom.nn.embeddings import OutputLayer
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.mixed_precision import normalise
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packed_recurrence import has_kernel, recur
from seqloom.nn.packing import Packing, Pairing
from seqloom.nn.transformer import Norm, TransformerBlock

pytestmark = pytest.mark.skipif(not has_bfloat16(), reason="this processor, or its kernels, have no bfloat16")
DIM, HEADS, LENGTHS = 64, 4, [5, 17, 1, 30]
PACKING = Packing(torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None])


def make_block(norm: Norm, dropout: float = 0.0) -> TransformerBlock:
    torch.manual_seed(3)
    return TransformerBlock(
        SelfAttention(DIM, HEADS, causal=True, dropout=dropout),
        CrossAttention(DIM, DIM, HEADS, dropout=dropout),
        FeedForward(DIM, 4 * DIM, "gelu", dropout=dropout),
        model_dim=DIM,
        norm=norm,
        dropout=dropout,
    )


def learn(block: TransformerBlock, x: Tensor, output: OutputLayer, *, short: bool) -> tuple[Tensor, list[Tensor]]:
    """The loss of a block, and its gradients."""
    torch.manual_seed(5)
    with torch.autocast("cpu", torch.bfloat16, enabled=short):
        states = block(x, PACKING, x, Pairing.of(PACKING, PACKING))
        loss = linear_cross_entropy(output, states, torch.arange(len(x)) % len(output.weight), smoothing=0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    assert states.dtype is loss.dtype is torch.float32
    gradients = [parameter.grad for parameter in (*block.parameters(), *output.parameters())]
    assert all(gradient is not None and gradient.dtype is torch.float32 for gradient in gradients)
    block.zero_grad()
    output.zero_grad()
    return loss.detach(), [gradient for gradient in gradients if gradient is not None]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("norm", [Norm(), Norm(position="post"), Norm("rms"), Norm("none")])
def test_loss_and_gradients_are_those_of_float32_but_for_rounding(norm: Norm, dropout: float) -> None:
    block, x, output = make_block(norm, dropout), torch.randn(sum(LENGTHS), DIM), OutputLayer(DIM, 99)
    (loss, gradients), (exact, wanted) = (learn(block, x, output, short=short) for short in (True, False))
    assert abs(float(loss - exact)) < 0.01 * float(exact)
    for found, expected in zip(gradients, wanted, strict=True):
        assert (found - expected).norm() < 0.05 * expected.norm() + 1e-2 * expected.numel() ** 0.5


def test_the_same_twice() -> None:
    block, x, output = make_block(Norm(), 0.2), torch.randn(sum(LENGTHS), DIM), OutputLayer(DIM, 99)
    first, second = (learn(block, x, output, short=True) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert all(map(torch.equal, first[1], second[1]))


def test_kernels_compute_between_the_products() -> None:
    block, x, output = make_block(Norm(), 0.2), torch.randn(sum(LENGTHS), DIM), OutputLayer(DIM, 99)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        learn(block, x, output, short=True)
    names = {event.key for event in recorded.key_averages()}
    assert names >= {"_Normalise", "_AddDropped", "_Transform", "_AttendPacked", "_LinearCrossEntropy"}
    assert not names & {"aten::native_layer_norm", "aten::dropout", "aten::bernoulli_", "aten::_softmax", "aten::gelu"}


def test_a_norm_that_is_watched_is_called() -> None:
    norm, seen = nn.LayerNorm(DIM), list[Tensor]()
    norm.register_forward_hook(lambda *given: seen.append(given[-1]))
    with torch.autocast("cpu", torch.bfloat16):
        assert normalise(norm, torch.randn(3, DIM)).dtype is torch.float32
        assert normalise(nn.LayerNorm(DIM), torch.randn(3, DIM)).dtype is torch.bfloat16
        assert normalise(nn.LayerNorm(DIM, bias=False), torch.randn(3, DIM)).dtype is torch.float32
    assert normalise(nn.LayerNorm(DIM), torch.randn(3, DIM)).dtype is torch.float32
    assert len(seen) == 1


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_only_bfloat16_is_served(kind: torch.dtype) -> None:
    called: Callable[[Tensor], Tensor] = nn.LayerNorm(DIM)
    assert isinstance(called, nn.Module)
    with torch.autocast("cpu", kind):
        found = normalise(called, torch.randn(2, DIM))
    assert found.dtype is (torch.bfloat16 if kind is torch.bfloat16 else torch.float32)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrences_stay_in_float32(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    torch.manual_seed(3)
    cell, x = kind(DIM, 48), torch.randn(sum(LENGTHS), DIM, requires_grad=True)
    found = []
    for short in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=short):
            assert has_kernel(cell, x)
            out, last = recur(cell, x, PACKING, None, reverse=False)
        assert out.dtype is last.dtype is torch.float32
        found.append([out, *torch.autograd.grad(out.square().sum(), [x, *cell.parameters()])])
    for mine, exact in zip(*found, strict=True):
        assert mine.dtype is torch.float32
        assert (mine - exact).norm() < 0.02 * exact.norm()
