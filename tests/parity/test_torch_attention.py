"""Parity with `nn.MultiheadAttention`."""

import pytest
import torch
from torch import nn

from parity.matching import assert_same, mask_of, shake
from seqloom.nn.cache import LayerSource
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing

DIM, HEADS = 16, 4


@pytest.fixture(params=[0, 4096], ids=["many-groups", "one-group"], autouse=True)
def _grouping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.nn.packing._GROUP_COST", request.param)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[7, 7, 7], [7, 2, 5], [1]], ids=str)
def test_self_attention(lengths, causal, bias):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(DIM, HEADS, bias=bias, batch_first=True)
    shake(theirs)
    ours = SelfAttention(DIM, HEADS, bias=bias, causal=causal)
    ours.in_projection.weight.data.copy_(theirs.in_proj_weight)
    ours.out_projection.load_state_dict(theirs.out_proj.state_dict())
    pairs = [
        (ours.in_projection.weight, theirs.in_proj_weight),
        (ours.out_projection.weight, theirs.out_proj.weight),
    ]
    if bias:
        ours.in_projection.bias.data.copy_(theirs.in_proj_bias)
        pairs += [(ours.in_projection.bias, theirs.in_proj_bias), (ours.out_projection.bias, theirs.out_proj.bias)]
    mask = mask_of(lengths)
    x, packing = torch.randn(*mask.shape, DIM, requires_grad=True), Packing(mask)
    future = torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool).triu(1) if causal else None
    expected, weights = theirs(
        x, x, x, key_padding_mask=~mask, attn_mask=future, need_weights=True, average_attn_weights=False
    )
    packed = packing.pack(x)
    assert_same(packing.unpack(ours(packed, packing)), expected, [x], pairs, mask)
    seen = weights * mask[:, None, :, None]
    torch.testing.assert_close(ours.weights(packed, packing), seen, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("lengths", "source_lengths"), [([4, 4], [6, 6]), ([5, 1, 3], [2, 6, 4]), ([1], [1])], ids=str)
def test_cross_attention(lengths, source_lengths):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    shake(theirs)
    ours = CrossAttention(DIM, DIM, HEADS)
    weight, offset = theirs.in_proj_weight, theirs.in_proj_bias
    for layer, rows in ((ours.query_projection, slice(0, DIM)), (ours.memory_projection, slice(DIM, None))):
        layer.weight.data.copy_(weight[rows])
        layer.bias.data.copy_(offset[rows])
    ours.out_projection.load_state_dict(theirs.out_proj.state_dict())
    mask, source_mask = mask_of(lengths), mask_of(source_lengths)
    x = torch.randn(*mask.shape, DIM, requires_grad=True)
    memory = torch.randn(*source_mask.shape, DIM, requires_grad=True)
    target, source = Packing(mask), Packing(source_mask)
    out = target.unpack(ours(target.pack(x), source.pack(memory), Pairing.of(target, source)))
    expected, _ = theirs(x, memory, memory, key_padding_mask=~source_mask)
    pairs = [
        (ours.out_projection.weight, theirs.out_proj.weight),
        (ours.out_projection.bias, theirs.out_proj.bias),
    ]
    assert_same(out, expected, [x, memory], pairs, mask)
    padding = torch.where(source_mask, 0.0, -torch.inf)[:, None, None]
    stepped = ours(x.flatten(0, 1), LayerSource(*ours.project(memory), padding)).view_as(x)
    assert_same(stepped, expected, [x, memory], pairs, mask)

    probe = torch.randn_like(out) * mask[:, :, None] / out.numel() ** 0.5
    layers = (ours.query_projection, ours.memory_projection)
    split = torch.autograd.grad((out * probe).sum(), [layer.weight for layer in layers], retain_graph=True)
    (fused,) = torch.autograd.grad((expected * probe).sum(), weight)
    torch.testing.assert_close(torch.cat(split), fused, rtol=1e-5, atol=1e-5)
