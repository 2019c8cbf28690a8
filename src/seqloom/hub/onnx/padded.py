"""Embeddings and self-attention over padded rows, in operations that take any shape: what a graph is traced from.

The stacks themselves pack their rows, which depends on the data and so cannot be traced. These are the same modules
with the same weights on rectangles: (B, T, D) with a mask, after P earlier tokens of each row.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from seqloom.nn.efficient_attention import window_reach
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.nn.multihead import CrossAttention, SelfAttention, merge_heads
from seqloom.nn.transformer import TransformerBlock

KeyValue = tuple[Tensor, Tensor]


def embed(embedding: TokenEmbedding, ids: Tensor) -> Tensor:
    """The vector of each id; a graph does not check that there is one."""
    vectors = F.embedding(ids, embedding.weight) * embedding.factor
    return vectors if embedding.segments is None else vectors + embedding.segments(ids)


def reverse_rows(x: Tensor, mask: Tensor) -> Tensor:
    """Each row from its last real token to its first, its padding as it is: (B, T, D)."""
    lengths, positions = mask.sum(1, keepdim=True), torch.arange(x.shape[1])
    order = torch.where(positions < lengths, lengths - 1 - positions, positions)
    return x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.shape[2]))


def shift(x: Tensor, offset: int) -> Tensor:
    """For each token the one `offset` positions later, zeros beyond the ends: (B, T, D)."""
    length = x.shape[1]
    return F.pad(x, (0, 0, max(0, -offset), max(0, offset)))[:, max(0, offset) :][:, :length]


def encode_blocks(blocks: nn.ModuleList, x: Tensor, mask: Tensor) -> Tensor:
    """Whole rows through encoder blocks."""
    positions = torch.arange(x.shape[1]).expand(x.shape[0], -1)
    for block in blocks:
        assert isinstance(block, TransformerBlock)
        x = block.attention_residual(x, lambda h, own=block.attention: _attend_whole(own, h, positions, mask))
        x = block.feedforward_residual(x, block.feedforward)
    return x


def step_block(
    block: TransformerBlock, x: Tensor, past: Tensor, source: KeyValue | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """New tokens through a decoder block, and the key-value cache with them: (B, 2G, P + T, K)."""
    kept: list[Tensor] = []

    def attend(h: Tensor) -> Tensor:
        out, present = _attend_past(block.attention, h, past)
        kept.append(present)
        return out

    x = block.attention_residual(x, attend)
    if block.cross is not None and block.cross_residual is not None and source is not None:
        cross = block.cross
        x = block.cross_residual(x, lambda h: attend_source(cross, h, source, bias))
    return block.feedforward_residual(x, block.feedforward), kept[0]


def attend_source(cross: CrossAttention, x: Tensor, source: KeyValue, bias: Tensor | None) -> Tensor:
    """Cross-attention of new tokens to a projected source."""
    query = cross.query_projection(x).unflatten(-1, (cross.num_heads, -1)).transpose(1, 2)
    out: Tensor = cross.out_projection(merge_heads(scaled_dot_product_attention(query, *source, bias)))
    return out


def _attend_whole(own: SelfAttention, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
    heads = _project(own, x, positions)
    if own.reverse:
        heads = reverse_rows(heads.flatten(2), mask).unflatten(-1, heads.shape[2:])
    query, key, value = _split(own, heads.transpose(1, 2))
    bias = _bias(own, x.shape[1], x.shape[1]) + torch.where(mask, 0.0, -torch.inf)[:, None, None, :]
    merged = merge_heads(scaled_dot_product_attention(query, key, value, bias))
    out: Tensor = own.out_projection(reverse_rows(merged, mask) if own.reverse else merged)
    return out


def _attend_past(own: SelfAttention, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    before, length = past.shape[2], x.shape[1]
    positions = (before + torch.arange(length)).expand(x.shape[0], -1)
    heads = _project(own, x, positions).transpose(1, 2)  # (B, H + 2G, T, K)
    query, new = heads.split([own.num_heads, 2 * own.num_kv_heads], dim=1)
    present = torch.cat([past, new], dim=2)
    key, value = present.chunk(2, dim=1)
    bias = _bias(own, length, before + length)
    attended = scaled_dot_product_attention(query, _share(own, key), _share(own, value), bias)
    return own.out_projection(merge_heads(attended)), present


def _project(own: SelfAttention, x: Tensor, positions: Tensor) -> Tensor:
    heads: Tensor = own.in_projection(x).unflatten(-1, (own.num_heads + 2 * own.num_kv_heads, own.head_dim))
    return own.encode_heads(heads, positions)


def _split(own: SelfAttention, heads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = heads.split([own.num_heads, own.num_kv_heads, own.num_kv_heads], dim=1)
    return query, _share(own, key), _share(own, value)


def _share(own: SelfAttention, heads: Tensor) -> Tensor:
    repeats = own.num_heads // own.num_kv_heads
    return heads if repeats == 1 else heads.unsqueeze(2).expand(-1, -1, repeats, -1, -1).flatten(1, 2)


def _bias(own: SelfAttention, num_queries: int, num_keys: int) -> Tensor:
    """What is added to the scores: −∞ where attention is not allowed, and position biases."""
    keys = torch.arange(num_keys)
    distance = keys[num_keys - num_queries :].unsqueeze(1) - keys  # how far behind its query a key lies
    allowed = distance >= 0 if own.causal else torch.ones_like(distance, dtype=torch.bool)
    if own.window is not None:
        before, after = window_reach(own.window, causal=own.causal)
        allowed = allowed & (distance <= before) & (distance >= -after)
    bias = torch.where(allowed, 0.0, -torch.inf)
    relative = own.relative
    return bias + relative.score_bias(distance) if relative is not None and relative.acts_on_scores else bias
