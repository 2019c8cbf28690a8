"""Each switch of an architecture, against a few lines of torch that compute the same in another way."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import TypeAdapter
from torch import Tensor, nn

from parity.matching import mask_of, shake
from seqloom.config.stacks import DecoderConfig, EncoderConfig
from seqloom.models.stacks import build_decoder, build_encoder, build_score
from seqloom.nn.convolution import Convolution, GatedConvolution
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing
from seqloom.nn.scored_attention import ScoredCrossAttention, ScoredSelfAttention
from seqloom.types import Encoded

DIM, HEADS, LENGTH = 12, 3, 5
WIDTH = DIM // HEADS
SCORES = ("dot", "bilinear", "additive")


def score_pair(module: nn.Module, kind: str, head: int, query: Tensor, key: Tensor) -> Tensor:
    """The score of one query and one key, as the equation says."""
    match kind:
        case "dot":
            return query.dot(key)
        case "scaled-dot":
            return query.dot(key) / math.sqrt(len(key))
        case "bilinear":
            return query @ module.weight[head] @ key
        case _:
            both = torch.cat([module.query.weight[head], module.key.weight[head]], dim=1)  # W₁ [q; k]
            return module.vector.weight[head, 0] @ torch.tanh(
                both @ torch.cat([query, key]) + module.query.bias[head, 0]
            )


def attend_pair_by_pair(score: Callable[..., Tensor], queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """(T, H, K), (S, H, K) and (S, H, K) → (T, H·K): no matrix product but W x."""
    rows = []
    for query in queries:
        heads = []
        for head in range(queries.shape[1]):
            scores = torch.stack([score(head, query[head], key[head]) for key in keys])
            weights = torch.exp(scores) / torch.exp(scores).sum()
            heads.append(sum(w * value[head] for w, value in zip(weights, values, strict=True)))
        rows.append(torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", SCORES)
def test_score_of_self_attention(kind):
    torch.manual_seed(0)
    module = ScoredSelfAttention(build_score(kind, WIDTH, WIDTH, HEADS), DIM, HEADS).double()
    shake(module)
    x, packing = torch.randn(LENGTH, DIM).double(), Packing(mask_of([LENGTH]))
    query, key, value = module.in_projection(x).view(LENGTH, 3, HEADS, WIDTH).unbind(1)
    mixed = attend_pair_by_pair(lambda *of: score_pair(module.score, kind, *of), query, key, value)
    torch.testing.assert_close(module(x, packing), module.out_projection(mixed))


@pytest.mark.parametrize("kind", SCORES)
def test_score_of_cross_attention(kind):
    torch.manual_seed(0)
    module = ScoredCrossAttention(build_score(kind, WIDTH, WIDTH, HEADS), DIM, 8, HEADS).double()
    shake(module)
    x, memory = torch.randn(4, DIM).double(), torch.randn(LENGTH, 8).double()
    pairing = Pairing.of(Packing(mask_of([4])), Packing(mask_of([LENGTH])))
    query = module.query_projection(x).view(4, HEADS, WIDTH)
    key, value = module.memory_projection(memory).view(LENGTH, 2, HEADS, WIDTH).unbind(1)
    mixed = attend_pair_by_pair(lambda *of: score_pair(module.score, kind, *of), query, key, value)
    torch.testing.assert_close(module(x, memory, pairing), module.out_projection(mixed))


def test_scaled_dot_is_the_same_in_both_classes():
    torch.manual_seed(0)
    plain = SelfAttention(DIM, HEADS, causal=True).double()
    scored = ScoredSelfAttention(build_score("scaled-dot", WIDTH, WIDTH, HEADS), DIM, HEADS, causal=True).double()
    scored.load_state_dict(plain.state_dict())
    packing = Packing(mask_of([5, 2, 4]))
    x = torch.randn(11, DIM).double()
    torch.testing.assert_close(scored(x, packing), plain(x, packing))
    torch.testing.assert_close(scored.weights(x, packing), plain.weights(x, packing))


def spread_blocks(weight: Tensor, parts: int) -> Tensor:
    """The block-diagonal matrix that does what the matrices of all chunks do."""
    return torch.cat([torch.block_diag(*part) for part in weight.unflatten(1, (parts, -1)).unbind(1)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_chunked_heads_are_full_heads_with_block_diagonal_matrices(dtype):
    torch.manual_seed(0)
    chunked, full = (SelfAttention(DIM, HEADS, chunked=one, causal=True).to(dtype) for one in (True, False))
    full.out_projection.load_state_dict(chunked.out_projection.state_dict())
    with torch.no_grad():
        full.in_projection.weight.copy_(spread_blocks(chunked.in_projection.weight, 3))
        full.in_projection.bias.copy_(chunked.in_projection.bias.unflatten(2, (3, -1)).permute(2, 0, 1, 3).flatten())
    packing, x = Packing(mask_of([5, 1, 3])), torch.randn(9, DIM, dtype=dtype)
    torch.testing.assert_close(chunked(x, packing), full(x, packing))
    torch.testing.assert_close(chunked.weights(x, packing), full.weights(x, packing))
    assert chunked.in_projection.weight.numel() * HEADS == full.in_projection.weight.numel()


def test_chunked_heads_of_cross_attention():
    torch.manual_seed(0)
    chunked, full = (CrossAttention(DIM, 6, HEADS, chunked=one, bias=False) for one in (True, False))
    full.out_projection.load_state_dict(chunked.out_projection.state_dict())
    with torch.no_grad():
        full.query_projection.weight.copy_(spread_blocks(chunked.query_projection.weight, 1))
        full.memory_projection.weight.copy_(spread_blocks(chunked.memory_projection.weight, 2))
    pairing = Pairing.of(Packing(mask_of([4, 1])), Packing(mask_of([2, 5])))
    x, memory = torch.randn(5, DIM), torch.randn(7, 6)
    torch.testing.assert_close(chunked(x, memory, pairing), full(x, memory, pairing))


def build(kind: Any, **options: Any) -> nn.Module:
    config = TypeAdapter(kind).validate_python({"num_layers": 2, "model_dim": DIM, "dropout": 0.0} | options)
    torch.manual_seed(0)
    module = build_encoder(config) if kind is EncoderConfig else build_decoder(config, 8)
    shake(module.double())
    return module


def attend_all(own: SelfAttention, x: Tensor) -> Tensor:
    """softmax(Q Kᵀ / √d) V W_o, of every head."""
    query, key, value = own.in_projection(x).view(len(x), 3, HEADS, WIDTH).permute(1, 2, 0, 3)
    return own.out_projection(((query @ key.mT / WIDTH**0.5).softmax(-1) @ value).transpose(0, 1).flatten(1))


USUAL = {"num_heads": HEADS, "positions": "none"}


def test_attention_alone():
    encoder = build(EncoderConfig, **USUAL, feedforward=False, residual=False, norm="none")
    x = torch.randn(LENGTH, DIM).double()
    expected = attend_all(encoder.blocks[1].attention, attend_all(encoder.blocks[0].attention, x))
    torch.testing.assert_close(encoder(x[None], mask_of([LENGTH])).states[0], expected)


@pytest.mark.parametrize("position", ["pre", "post"])
def test_no_residual(position):
    encoder = build(EncoderConfig, **USUAL, residual=False, norm_position=position)
    x = y = torch.randn(LENGTH, DIM).double()
    for block in encoder.blocks:
        for sublayer, residual in (
            (lambda h, own=block.attention: attend_all(own, h), block.attention_residual),
            (block.feedforward, block.feedforward_residual),
        ):
            y = sublayer(residual.norm(y)) if position == "pre" else residual.norm(sublayer(y))
    torch.testing.assert_close(encoder(x[None], mask_of([LENGTH])).states[0], encoder.final_norm(y))


def test_no_feedforward_and_no_norm():
    encoder = build(EncoderConfig, **USUAL, feedforward=False, norm="none")
    x = torch.randn(LENGTH, DIM).double()
    y = x + attend_all(encoder.blocks[0].attention, x)
    y = y + attend_all(encoder.blocks[1].attention, y)
    torch.testing.assert_close(encoder(x[None], mask_of([LENGTH])).states[0], y)
    assert not [module for module in encoder.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)]


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("dilation", [1, 2, 5])
@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_convolution(gate, dilation, direction):
    torch.manual_seed(0)
    kernel, left = 3, {"forward": 2, "backward": 0, "both": 1}[direction]
    ours = (GatedConvolution if gate else Convolution)(DIM, DIM, kernel, direction, dilation)
    theirs = nn.Conv1d(DIM, 2 * DIM if gate else DIM, kernel, dilation=dilation)
    layers = [ours.value, ours.gate] if gate else [ours.value]
    with torch.no_grad():
        for one, weight, bias in zip(
            layers, theirs.weight.chunk(len(layers)), theirs.bias.chunk(len(layers)), strict=True
        ):
            one.weight.copy_(weight.transpose(1, 2).flatten(1))
            one.bias.copy_(bias)
    x = torch.randn(1, 9, DIM)
    out = theirs(F.pad(x.transpose(1, 2), (left * dilation, (2 - left) * dilation)))
    expected = (F.glu(out, dim=1) if gate else F.relu(out)).transpose(1, 2)
    torch.testing.assert_close(ours(x[0], Packing(mask_of([9]))), expected[0], rtol=1e-5, atol=1e-5)


def test_convolutions_without_residual():
    encoder = build(EncoderConfig, family="convolutional", residual=False, positions="none")
    x = torch.randn(LENGTH, DIM).double()
    packing = Packing(mask_of([LENGTH]))
    expected = encoder.layers[1](encoder.layers[0](x, packing), packing)
    torch.testing.assert_close(encoder(x[None], mask_of([LENGTH])).states[0], expected)


def test_decoder_of_convolutions_without_residual():
    decoder = build(DecoderConfig, family="convolutional", residual=False, positions="none", score="additive")
    x, states = torch.randn(1, 4, DIM).double(), torch.randn(1, LENGTH, 8).double()
    mask, source = mask_of([4]), mask_of([LENGTH])
    packing, pairing = Packing(mask), Pairing.of(Packing(mask), Packing(source))
    y = x[0]
    for layer, cross in zip(decoder.layers, decoder.cross, strict=True):
        h = layer(y, packing)
        y = (h + cross(h, states[0], pairing)) * math.sqrt(0.5)
    torch.testing.assert_close(decoder(x, mask, Encoded(states, source, states.mean(1)))[0], y)


@pytest.mark.parametrize(
    ("kernel", "base", "layers", "seen"), [(3, 1, 4, 9), (3, 3, 3, 27), (2, 2, 4, 16), (3, 2, 3, 15)]
)
def test_reach_of_dilated_convolutions(kernel, base, layers, seen):
    """1 + (k − 1)(1 + b + … + b^{n−1}) inputs, all of them: k^n where the base is the kernel."""
    options = {"direction": "forward", "positions": "none", "kernel": kernel, "dilation_base": base}
    encoder = build(EncoderConfig, family="convolutional", **options | {"num_layers": layers})
    x = torch.randn(1, 40, DIM).double().requires_grad_()
    (gradient,) = torch.autograd.grad(encoder(x, mask_of([40])).states[0, -1].sum(), x)
    touched = gradient[0].abs().amax(-1) > 0
    assert touched[-seen:].all()
    assert not touched[:-seen].any()
