"""Multi-head attention: self-attention and cross-attention.

    head_h = attend(x W_q^h, x W_k^h, x W_v^h)          output = [head_1; …; head_H] W_o

All heads are one matrix product and one reshape. With H key-value heads this is ordinary multi-head attention. Several
query heads may share a key-value head: with one in all it is multi-query attention (Shazeer 2019), in between
grouped-query attention (Ainslie et al. 2023). Chunked heads read a chunk of x each, not all of it (`nn/headwise.py`).

Each module runs in two ways that give the same numbers: over whole sequences, packed without padding; and over a few
new tokens, with keys and values kept from earlier steps. `weights` gives the attention weights of `forward`.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.errors import ShapeError
from seqloom.native.library import is_plain, serves
from seqloom.nn import varlen_attention
from seqloom.nn.attention import SCALED_DOT, Score, attend, attention_weights
from seqloom.nn.cache import LayerCache, LayerSource
from seqloom.nn.efficient_attention import (
    attend_packed,
    attend_scored,
    attend_window,
    can_attend,
    find_distances,
    window_mask,
)
from seqloom.nn.headwise import ChunkedLinear, divide
from seqloom.nn.packing import Groups, Packing, Pairing, unpack_pairs
from seqloom.nn.positions import PositionEncoding, Rotary
from seqloom.nn.varlen_attention import attend_varlen

Packed = Float[Tensor, "N D"]
Rectangle = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Queries, keys and values of sequences of similar length, (b, H, T, K) each, and a mask of the real keys."""


class SelfAttention(nn.Module):
    """Every position of a sequence attends to the others, through H heads."""

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        chunked: bool = False,
        bias: bool = True,
        causal: bool = False,
        reverse: bool = False,
        window: int | None = None,
        relative: PositionEncoding | None = None,
        normalise_qk: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_dim = divide(model_dim, num_heads, "model_dim", "num_heads") if head_dim is None else head_dim
        divide(num_heads, self.num_kv_heads, "num_heads", "num_kv_heads")
        self.causal, self.reverse, self.window, self.dropout = causal, reverse, window, dropout
        self.relative = relative
        """The position encoding, if it acts on queries and keys or on the scores."""
        self.normalise_qk = normalise_qk
        self.in_projection: nn.Linear | ChunkedLinear
        if not chunked:
            self.in_projection = nn.Linear(model_dim, (num_heads + 2 * self.num_kv_heads) * self.head_dim, bias=bias)
        elif self.num_kv_heads == num_heads:
            self.in_projection = ChunkedLinear(model_dim, num_heads, self.head_dim, parts=3, bias=bias)
        else:
            raise ShapeError(f"chunked heads share no keys, but num_kv_heads = {num_kv_heads} for {num_heads} heads")
        self.out_projection = nn.Linear(num_heads * self.head_dim, model_dim, bias=bias)

    def forward(self, x: Packed, tokens: Packing | LayerCache) -> Packed:
        """Whole sequences (with `causal` and `reverse`, read from the end); or new tokens, after those in the cache."""
        return self.out_projection(self.attend(x, tokens))

    def attend(self, x: Packed, tokens: Packing | LayerCache) -> Float[Tensor, "N _"]:
        """The concatenated outputs of all heads."""
        heads: Tensor = self.in_projection(x)
        if isinstance(tokens, LayerCache):
            return self._attend_cache(heads, tokens)
        if self._has_kernel(heads, tokens):
            return self._attend_packed(heads, tokens)
        if self._is_varlen(heads, tokens):
            rows = self.encode_heads(heads.unflatten(1, (-1, self.head_dim)), tokens.positions).to(heads.dtype)
            return attend_varlen(*self._split(rows, dim=1), tokens, tokens, causal=self.causal)
        groups = tokens.groups(reverse=self.reverse)
        return groups.collect([merge_heads(self._attend(*parts)) for parts in self._rectangles(heads, groups)])

    @property
    def score_function(self) -> Score:
        """How well a key matches a query; `nn/scored_attention.py` has others."""
        return SCALED_DOT

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        score, causal, dropout = self.score_function, self.causal, self.dropout if self.training else 0.0
        if self.window is None and score is SCALED_DOT and self._score_bias is None:
            # Padding is at the end, so under a causal mask no real position can see it.
            allowed = None if mask is None or causal else mask[:, None, None, :]
            return attend(query, key, value, allowed, causal=causal, dropout=dropout)
        inner = attend_scored if self.window is None else partial(attend_window, window=self.window)
        bias = self._score_bias
        return inner(query, key, value, mask, causal=causal, score=score, score_bias=bias, dropout=dropout)

    def weights(self, x: Packed, tokens: Packing | LayerCache) -> Float[Tensor, "B H T S"]:
        """The attention weights of each head at each position; 0 for padding and across documents.

        For new tokens there is a row for each beam of each line, with weights over the tokens of that beam.
        """
        heads = self.in_projection(x)
        if isinstance(tokens, LayerCache):
            return self._weigh_cache(heads, tokens)
        groups = tokens.groups(reverse=self.reverse)
        parts = []
        for query, key, _, mask in self._rectangles(heads, groups):
            allowed = None if mask is None else mask[:, None, None, :]
            if self.window is not None:
                near = window_mask(query.shape[2], self.window, causal=self.causal, device=x.device)
                allowed = near if allowed is None else near & allowed
            bias = self._bias(query)
            parts.append(
                attention_weights(query, key, allowed, score=self.score_function, causal=self.causal, bias=bias)
            )
        return unpack_pairs(parts, groups, groups)

    def _rectangles(self, projected: Float[Tensor, "N _"], groups: Groups) -> Iterator[Rectangle]:
        heads = self.encode_heads(projected.unflatten(1, (-1, self.head_dim)), groups.packing.positions)
        for rows, mask in zip(groups.spread(heads.flatten(1)), groups.masks, strict=True):
            query, key, value = self._split(rows.unflatten(-1, (-1, self.head_dim)).transpose(1, 2), dim=1)
            yield query, self._share(key), self._share(value), mask

    def encode_heads(self, heads: Float[Tensor, "*N J K"], positions: Int[Tensor, "*N"]) -> Float[Tensor, "*N J K"]:
        """The J = H + 2G heads of each token, with queries and keys normalised and encoded with their positions."""
        if not self._encodes_heads:
            return heads
        query, key, value = self._split(heads, dim=-2)
        if self.normalise_qk:  # Dehghani et al. 2023, §2.1, without gains
            query, key = (F.rms_norm(t, (self.head_dim,)) for t in (query, key))
        if self.relative is not None and self.relative.acts_on_query_key:
            query, key = self.relative.encode_query_key(query, key, positions)
        return torch.cat([query, key, value], dim=-2)

    @property
    def _encodes_heads(self) -> bool:
        return self.normalise_qk or (self.relative is not None and self.relative.acts_on_query_key)

    @property
    def _score_bias(self) -> Callable[[Tensor], Tensor] | None:
        """What each head adds to the score at a distance; None for nothing."""
        relative = self.relative
        return relative.score_bias if relative is not None and relative.acts_on_scores else None

    def _bias(self, query: Float[Tensor, "B H T K"]) -> Float[Tensor, "H T T"] | None:
        bias, length = self._score_bias, query.shape[2]
        return None if bias is None else bias(find_distances(length, length, 0, query.device))

    def _split(self, heads: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values."""
        query, key, value = heads.split([self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=dim)
        return query, key, value

    def _share(self, heads: Tensor) -> Tensor:
        """(B, G, S, K) → (B, H, S, K): a group of query heads shares each key-value head."""
        repeats = self.num_heads // self.num_kv_heads
        return heads if repeats == 1 else heads.repeat_interleave(repeats, dim=1)

    def _has_kernel(self, heads: Tensor, packing: Packing) -> bool:
        """Whether `attend_packed` computes exactly what this module does."""
        relative = self.relative
        known = relative is None or (is_plain(relative, Rotary) and serves(relative.frequencies, mixed=True))  # type: ignore[arg-type]
        return type(self) is SelfAttention and self.window is None and known and can_attend(heads, packing)

    def _is_varlen(self, heads: Tensor, packing: Packing) -> bool:
        """Whether a GPU's kernel for packed sequences computes what this module does."""
        dense = self.window is None and self._score_bias is None and not (self.causal and self.reverse)
        plain = type(self) is SelfAttention and dense and not (self.training and self.dropout)
        return plain and varlen_attention.serves(heads, self.head_dim, packing, packing)

    def _attend_packed(self, heads: Float[Tensor, "N _"], packing: Packing) -> Float[Tensor, "N _"]:
        angles = None
        if isinstance(self.relative, Rotary):
            angles = self.relative.tabulate_angles(int(packing.counts.max(initial=0)))
        return attend_packed(
            *(heads, None, packing, packing, self.num_heads, self.num_kv_heads, self.head_dim),
            sees="everything" if not self.causal else "future" if self.reverse else "past",
            normalised=self.normalise_qk,
            rotary=angles,
            dropout=self.dropout if self.training else 0.0,
        )

    def start(self, batch_size: int, capacity: int) -> Float[Tensor, "B A P 1 K"]:
        """An empty cache for the keys and values of `capacity` tokens of each line."""
        shape = (batch_size, 2 * self.num_kv_heads, capacity, 1, self.head_dim)
        return self.in_projection.weight.new_empty(shape)

    def _attend_cache(self, projected: Float[Tensor, "N _"], cache: LayerCache) -> Float[Tensor, "N _"]:
        """New tokens, the same number per beam, attend to the cache, to which their keys and values are added first."""
        query, key_value = self._split_new(projected, cache)
        cache.write(key_value)
        out = self._attend_slots(query, *cache.read(self.num_heads, self.window, self._score_bias))
        batch, width, length = *cache.entries.shape[:4:3], cache.new.length
        out = out.view(batch, self.num_heads, length, width, self.head_dim).permute(0, 3, 2, 1, 4)
        return out.reshape(len(projected), -1)

    def _attend_slots(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, bias)

    def _weigh_slots(self, query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
        return attention_weights(query, key, bias=bias)

    def _weigh_cache(self, projected: Float[Tensor, "N _"], cache: LayerCache) -> Float[Tensor, "R H T P"]:
        query, _ = self._split_new(projected, cache)
        key, _, bias = cache.read(self.num_heads, self.window, self._score_bias)
        batch, width, length = *cache.entries.shape[:4:3], cache.new.length
        slots = self._weigh_slots(query, key, bias).view(batch, self.num_heads, length, width, -1, width)
        weights = slots.sum(-1)  # only one is visible
        return weights.permute(0, 3, 1, 2, 4).flatten(0, 1)

    def _split_new(
        self, projected: Float[Tensor, "N _"], cache: LayerCache
    ) -> tuple[Float[Tensor, "B G Q K"], Float[Tensor, "B A T W K"]]:
        """The queries of new tokens in the order of `cache.read`, and their keys and values."""
        (batch, both, _, width, dim), new, heads = cache.entries.shape, cache.new, self.num_heads
        rows = projected.view(batch, width, new.length, heads + both, dim)
        if self._encodes_heads:
            rows = self.encode_heads(rows, new.positions.unsqueeze(1).expand(batch, width, -1))
        query, key_value = rows.permute(0, 3, 2, 1, 4).split([heads, both], dim=1)  # (B, ·, T, W, K)
        return query.reshape(batch, both // 2, -1, dim), key_value


class CrossAttention(nn.Module):
    """Every position of a target attends to every position of a source."""

    def __init__(
        self,
        model_dim: int,
        memory_dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        chunked: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = divide(model_dim, num_heads, "model_dim", "num_heads") if head_dim is None else head_dim
        self.dropout = dropout
        width = num_heads * self.head_dim
        self.query_projection: nn.Linear | ChunkedLinear
        self.memory_projection: nn.Linear | ChunkedLinear
        if chunked:
            self.query_projection = ChunkedLinear(model_dim, num_heads, self.head_dim, bias=bias)
            self.memory_projection = ChunkedLinear(memory_dim, num_heads, self.head_dim, parts=2, bias=bias)
        else:
            self.query_projection = nn.Linear(model_dim, width, bias=bias)
            self.memory_projection = nn.Linear(memory_dim, 2 * width, bias=bias)
        self.out_projection = nn.Linear(width, model_dim, bias=bias)

    def forward(self, x: Packed, memory: Float[Tensor, "M E"] | LayerSource, pairing: Pairing | None = None) -> Packed:
        """Whole targets attend to their packed sources; or new tokens, the same number per line, to projected ones."""
        return self.out_projection(self.attend(x, memory, pairing))

    @property
    def score_function(self) -> Score:
        """How well a key matches a query; `nn/scored_attention.py` has others."""
        return SCALED_DOT

    def attend(
        self, x: Packed, memory: Float[Tensor, "M E"] | LayerSource, pairing: Pairing | None
    ) -> Float[Tensor, "N _"]:
        """The concatenated outputs of all heads."""
        queries = self.query_projection(x)
        if isinstance(memory, LayerSource):
            query = self._split(queries, memory.keys)
            if memory.record is not None:
                memory.record.append(self._weigh(query, memory).mean(1).flatten(0, 1))
            return merge_heads(self._attend_source(query, memory)).flatten(0, 1)
        assert pairing is not None
        dropout = self.dropout if self.training else 0.0
        memories, target, source = self.memory_projection(memory), pairing.target.packing, pairing.source.packing
        if self._has_kernel(queries, memories, pairing):
            heads = (self.num_heads, self.num_heads, self.head_dim)
            return attend_packed(queries, memories, target, source, *heads, dropout=dropout)
        if self._is_varlen(queries, target, source) and memories.dtype is queries.dtype:
            key, value = memories.unflatten(-1, (2, self.num_heads, -1)).unbind(1)
            return attend_varlen(queries.unflatten(1, (self.num_heads, -1)), key, value, target, source)
        pairs, score = self._rectangles(queries, memories, pairing), self.score_function
        return pairing.target.collect([merge_heads(attend(*pair, score=score, dropout=dropout)) for pair in pairs])

    def _attend_source(self, query: Float[Tensor, "B H T K"], source: LayerSource) -> Float[Tensor, "B H T K"]:
        return F.scaled_dot_product_attention(query, source.keys, source.values, source.bias)

    def weights(
        self, x: Packed, memory: Float[Tensor, "M E"] | LayerSource, pairing: Pairing | None = None
    ) -> Float[Tensor, "B H T S"]:
        """The attention weights of each head at each target position; for new tokens, the beams of a line in turn."""
        queries = self.query_projection(x)
        if isinstance(memory, LayerSource):
            return self._weigh(self._split(queries, memory.keys), memory)
        assert pairing is not None
        pairs = self._rectangles(queries, self.memory_projection(memory), pairing)
        score = self.score_function
        parts = [attention_weights(query, key, mask, score=score) for query, key, _, mask in pairs]
        return unpack_pairs(parts, pairing.target, pairing.source)

    def _has_kernel(self, queries: Tensor, memories: Tensor, pairing: Pairing) -> bool:
        """Whether `attend_packed` computes exactly what this module does."""
        served = can_attend(queries, pairing.target.packing) and can_attend(memories, pairing.source.packing)
        return type(self) is CrossAttention and served and memories.dtype is queries.dtype

    def _is_varlen(self, queries: Tensor, target: Packing, source: Packing) -> bool:
        """Whether a GPU's kernel for packed sequences computes what this module does."""
        plain = type(self) is CrossAttention and not (self.training and self.dropout)
        return plain and varlen_attention.serves(queries, self.head_dim, target, source)

    def project(self, memory: Float[Tensor, "B S E"]) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"]]:
        """Keys and values of a padded source, computed once for all steps."""
        key, value = self.memory_projection(memory).unflatten(-1, (2, self.num_heads, -1)).unbind(2)
        # Contiguous for each head, because every step reads them all.
        return key.transpose(1, 2).contiguous(), value.transpose(1, 2).contiguous()

    def _split(self, queries: Float[Tensor, "N A"], keys: Float[Tensor, "B H S K"]) -> Float[Tensor, "B H T K"]:
        return queries.view(len(keys), -1, self.num_heads, self.head_dim).transpose(1, 2)

    def _weigh(self, query: Float[Tensor, "B H T K"], source: LayerSource) -> Float[Tensor, "B H T S"]:
        mask = None if source.bias is None else source.bias == 0
        return attention_weights(query, source.keys, mask, score=self.score_function)

    def _rectangles(self, queries: Tensor, memories: Tensor, pairing: Pairing) -> Iterator[Rectangle]:
        target, source = pairing.target.spread(queries), pairing.source.spread(memories)
        for rows, memory, mask in zip(target, source, pairing.source.masks, strict=True):
            query = rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            key, value = memory.unflatten(-1, (2, self.num_heads, -1)).unbind(2)
            allowed = None if mask is None else mask[:, None, None, :]
            yield query, key.transpose(1, 2), value.transpose(1, 2), allowed


def merge_heads(heads: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T D"]:
    """Concatenate the heads of each position."""
    return heads.transpose(1, 2).flatten(2)
