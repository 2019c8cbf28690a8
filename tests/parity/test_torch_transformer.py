"""Parity with `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`, one layer and stacked."""

import pytest
import torch
from torch import Tensor, nn

from parity.matching import assert_same, mask_of, shake
from seqloom.config.stacks import TransformerDecoderConfig, TransformerEncoderConfig
from seqloom.models.stacks import build_decoder, build_encoder
from seqloom.nn.transformer import TransformerBlock
from seqloom.types import Encoded

DIM, HEADS, HIDDEN = 16, 4, 24
Pairs = list[tuple[Tensor, Tensor]]


def options(norm_position: str, activation: str, num_layers: int) -> dict[str, object]:
    return {
        "model_dim": DIM,
        "num_heads": HEADS,
        "hidden_dim": HIDDEN,
        "num_layers": num_layers,
        "norm_position": norm_position,
        "activation": activation,
        "positions": {"kind": "none"},
    }


def peer(kind: str, norm_position: str, activation: str, num_layers: int) -> nn.Module:
    """PyTorch's stack; a pre-norm one ends with a norm of its own, as ours does."""
    layer, stack = {
        "encoder": (nn.TransformerEncoderLayer, nn.TransformerEncoder),
        "decoder": (nn.TransformerDecoderLayer, nn.TransformerDecoder),
    }[kind]
    first = norm_position == "pre"
    one = layer(DIM, HEADS, HIDDEN, 0.0, activation, batch_first=True, norm_first=first)
    extra = {"enable_nested_tensor": False} if kind == "encoder" else {}
    return stack(one, num_layers, norm=nn.LayerNorm(DIM) if first else None, **extra)


def match(block: TransformerBlock, layer: nn.Module) -> Pairs:
    """Our parameters beside theirs, cross-attention in the same order as in ours."""
    own, theirs = block.attention, layer.self_attn
    attentions = [(own.in_projection.weight, theirs.in_proj_weight), (own.in_projection.bias, theirs.in_proj_bias)]
    attentions += zip(own.out_projection.parameters(), theirs.out_proj.parameters(), strict=True)
    norms = [layer.norm1, layer.norm2, layer.norm3] if block.cross is not None else [layer.norm1, layer.norm2]
    residuals = [block.attention_residual, block.cross_residual, block.feedforward_residual]
    ours = [r.norm for r in residuals if r is not None] + [block.feedforward.expand, block.feedforward.contract]
    other = [*norms, layer.linear1, layer.linear2]
    if block.cross is not None:
        ours.append(block.cross.out_projection)
        other.append(layer.multihead_attn.out_proj)
    return attentions + [
        pair for a, b in zip(ours, other, strict=True) for pair in zip(a.parameters(), b.parameters(), strict=True)
    ]


def copy(pairs: Pairs) -> None:
    with torch.no_grad():
        for mine, yours in pairs:
            mine.copy_(yours)


def over_every_kind(test):
    for name, values in {
        "norm_position": ["pre", "post"],
        "activation": ["relu", "gelu"],
        "num_layers": [1, 3],
    }.items():
        test = pytest.mark.parametrize(name, values)(test)
    return test


@over_every_kind
def test_encoder(norm_position, activation, num_layers):
    torch.manual_seed(0)
    theirs = peer("encoder", norm_position, activation, num_layers)
    shake(theirs)
    ours = build_encoder(TransformerEncoderConfig(**options(norm_position, activation, num_layers))).eval()
    pairs = [pair for own, layer in zip(ours.blocks, theirs.layers, strict=True) for pair in match(own, layer)]
    if norm_position == "pre":
        pairs += zip(ours.final_norm.parameters(), theirs.norm.parameters(), strict=True)
    copy(pairs)
    assert len(pairs) == len(list(ours.parameters()))
    mask = mask_of([6, 2, 4, 5])
    x = torch.randn(*mask.shape, DIM, requires_grad=True)
    assert_same(ours(x, mask).states, theirs(x, src_key_padding_mask=~mask), [x], pairs, mask)


@over_every_kind
def test_decoder(norm_position, activation, num_layers):
    torch.manual_seed(0)
    theirs = peer("decoder", norm_position, activation, num_layers)
    shake(theirs)
    ours = build_decoder(TransformerDecoderConfig(**options(norm_position, activation, num_layers)), DIM).eval()
    pairs = [pair for own, layer in zip(ours.blocks, theirs.layers, strict=True) for pair in match(own, layer)]
    if norm_position == "pre":
        pairs += zip(ours.final_norm.parameters(), theirs.norm.parameters(), strict=True)
    copy(pairs)
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        fused = layer.multihead_attn
        copy(
            [
                (block.cross.query_projection.weight, fused.in_proj_weight[:DIM]),
                (block.cross.query_projection.bias, fused.in_proj_bias[:DIM]),
                (block.cross.memory_projection.weight, fused.in_proj_weight[DIM:]),
                (block.cross.memory_projection.bias, fused.in_proj_bias[DIM:]),
            ]
        )
    assert len(pairs) + 4 * num_layers == len(list(ours.parameters()))
    mask, source = mask_of([5, 1, 3]), mask_of([2, 6, 4])
    x, memory = (torch.randn(*m.shape, DIM, requires_grad=True) for m in (mask, source))
    expected = theirs(
        x,
        memory,
        tgt_mask=torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool).triu(1),
        tgt_key_padding_mask=~mask,
        memory_key_padding_mask=~source,
    )
    encoded = Encoded(memory, source, memory[:, 0])
    assert_same(ours(x, mask, encoded), expected, [x, memory], pairs, mask)
