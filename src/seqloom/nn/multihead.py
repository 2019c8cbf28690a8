"""Multi-head attention: self and cross.

    head_h = attend(x W_q^h, x W_k^h, x W_v^h)          output = [head_1; …; head_H] W_o

All heads are one matrix product and one reshape. Several query heads may share a key-value head: H of them is ordinary
multi-head attention, one is multi-query (Shazeer 2019), in between is grouped-query attention (Ainslie et al. 2023).

Each module runs in two ways that give the same numbers: over whole sequences, packed without padding; and over a few
new tokens, against keys and values kept from before. `weights` shows, for the same input, what `forward` mixed with.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as mix

from seqloom.errors import ShapeError
from seqloom.native import serves
from seqloom.nn.attention import attend, attention_weights
from seqloom.nn.cache import KeyValueCache, LayerSource
from seqloom.nn.masks import window_mask
from seqloom.nn.packed_attention import Heads, Looks, attend_packed, can_attend
from seqloom.nn.packing import Groups, Packing, Pairing
from seqloom.nn.plain import is_plain
from seqloom.nn.positions import RelativeBias, Rotary, alibi_slopes
from seqloom.nn.window import windowed_attend

Packed = Float[Tensor, "N D"]


class SelfAttention(nn.Module):
    """Every position of a sequence looks at the others, through H heads."""

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        causal: bool = False,
        reverse: bool = False,
        window: int | None = None,
        rotary: Rotary | None = None,
        alibi: bool = False,
        relative: RelativeBias | None = None,
        normalise_qk: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_dim = divide(model_dim, num_heads, "model_dim", "num_heads") if head_dim is None else head_dim
        divide(num_heads, self.num_kv_heads, "num_heads", "num_kv_heads")
        self.causal, self.reverse, self.window, self.dropout = causal, reverse, window, dropout
        self.rotary, self.relative = rotary, relative
        self.register_buffer("slopes", alibi_slopes(num_heads) if alibi else None, persistent=False)
        self.slopes: Tensor | None
        self.normalise_qk = normalise_qk
        self.in_projection = nn.Linear(model_dim, (num_heads + 2 * self.num_kv_heads) * self.head_dim, bias=bias)
        self.out_projection = nn.Linear(num_heads * self.head_dim, model_dim, bias=bias)

    def forward(self, x: Packed, tokens: Packing | KeyValueCache) -> Packed:
        """Whole sequences, causal ones read from their end if `reverse`; or new tokens beside those that are kept."""
        out: Tensor = self.out_projection(self.mix(x, tokens))
        return out

    def mix(self, x: Packed, tokens: Packing | KeyValueCache) -> Float[Tensor, "N _"]:
        """What the heads of each position mix, side by side."""
        heads: Tensor = self.in_projection(x)
        if isinstance(tokens, KeyValueCache):
            return self._attend_cache(heads, tokens)
        if self._is_plain and can_attend(heads, tokens):
            return attend_packed(heads, None, tokens, tokens, self._describe(tokens))
        return self._attend_groups(heads, tokens)

    def _attend_groups(self, heads: Float[Tensor, "N A"], packing: Packing) -> Packed:
        groups = packing.groups(reverse=self.reverse)
        mixed = []
        for rows, mask in zip(
            groups.spread(self._turn_rows(heads, packing.positions).flatten(1)), groups.masks, strict=True
        ):
            query, key, value = self._split(rows)
            mixed.append(merge_heads(self._attend(query, key, value, mask)))
        return groups.collect(mixed)

    @property
    def _is_plain(self) -> bool:
        """Whether `attend_packed` knows all that is asked for."""
        return (
            type(self) is SelfAttention
            and self.window is None
            and self.slopes is None
            and self.relative is None
            and (self.rotary is None or (is_plain(self.rotary, Rotary) and serves(self.rotary.frequencies)))
        )

    def _describe(self, packing: Packing) -> Heads:
        looks: Looks = "all" if not self.causal else "future" if self.reverse else "past"
        turns = None if self.rotary is None else self.rotary.tabulate(int(packing.counts.max(initial=0)))
        dropout = self.dropout if self.training else 0.0
        return Heads(self.num_heads, self.num_kv_heads, self.head_dim, looks, self.normalise_qk, turns, dropout)

    def weights(self, x: Packed, tokens: Packing | KeyValueCache) -> Float[Tensor, "B H T S"]:
        """The attention weights of each position, each head; 0 for padding and across documents.

        Of new tokens: a row for each beam of each line, and the weights of the tokens in its own past.
        """
        if isinstance(tokens, KeyValueCache):
            return self._weigh_cache(x, tokens)
        groups = tokens.groups(reverse=self.reverse)
        heads = self._turn_rows(self.in_projection(x), tokens.positions).flatten(1)
        parts = []
        for rows, mask in zip(groups.spread(heads), groups.masks, strict=True):
            query, key, _ = self._split(rows)
            length = rows.shape[1]
            allowed = None if mask is None else mask[:, None, None, :]
            if self.window is not None:
                near = window_mask(length, self.window, causal=self.causal, device=x.device)
                allowed = near if allowed is None else near & allowed
            bias = self._bias(length, x.device)
            parts.append(attention_weights(query, key, allowed, causal=self.causal, bias=bias))
        return lay_out_weights(parts, groups, groups)

    def start(self, batch_size: int, capacity: int) -> Float[Tensor, "B A P 1 K"]:
        """Room for the keys and values of `capacity` tokens of each line."""
        shape = (batch_size, 2 * self.num_kv_heads, capacity, 1, self.head_dim)
        return self.in_projection.weight.new_empty(shape)

    def _attend_cache(self, projected: Float[Tensor, "N _"], cache: KeyValueCache) -> Float[Tensor, "N _"]:
        """New tokens, as many of each beam, against all that is kept; their own keys and values are kept, too."""
        query, fresh = self._split_new(projected, cache)
        cache.write(fresh)
        seen, bias = self._open_cache(cache)
        groups = self.num_kv_heads
        mixed = mix(query, seen.narrow(1, 0, groups), seen.narrow(1, groups, groups), bias)
        batch, width, length = *cache.entries.shape[:4:3], cache.new.length
        mixed = mixed.view(batch, self.num_heads, length, width, self.head_dim).permute(0, 3, 2, 1, 4)
        return mixed.reshape(len(projected), -1)

    def _weigh_cache(self, x: Packed, cache: KeyValueCache) -> Float[Tensor, "R H T P"]:
        (query, _), (seen, bias) = self._split_new(self.in_projection(x), cache), self._open_cache(cache)
        batch, width, length = *cache.entries.shape[:4:3], cache.new.length
        weights = attention_weights(query, seen.narrow(1, 0, self.num_kv_heads), bias=bias)
        weights = weights.view(batch, self.num_heads, length, width, -1, width).sum(-1)  # one slot of each token
        return weights.permute(0, 3, 1, 2, 4).flatten(0, 1)

    def _split_new(
        self, projected: Float[Tensor, "N _"], cache: KeyValueCache
    ) -> tuple[Float[Tensor, "B G Q K"], Float[Tensor, "B A T W K"]]:
        """Queries, and keys and values, of new tokens.

        Query heads that share a key-value head, new tokens and beams are all queries: Q = H/G·T·W.
        """
        (batch, kept, _, width, dim), new, heads = cache.entries.shape, cache.new, self.num_heads
        rows = projected.view(batch, width, new.length, heads + kept, dim)
        if self._turns:
            rows = self._turn(rows, new.places.unsqueeze(1).expand(batch, width, -1))
        query, fresh = rows.permute(0, 3, 2, 1, 4).split([heads, kept], dim=1)  # (B, ·, T, W, K)
        queries = heads // self.num_kv_heads * new.length * width
        return query.reshape(batch, self.num_kv_heads, queries, dim), fresh

    def _open_cache(self, cache: KeyValueCache) -> tuple[Float[Tensor, "B A S K"], Tensor | None]:
        """What new tokens attend to, the slots of all beams (S = P·W), and what is added to the scores."""
        new = cache.new
        first = 0 if self.window is None else max(0, new.start - self.window + 1)
        seen = cache.entries.narrow(2, first, new.end - first).flatten(2, 3)
        return seen, self._cache_bias(cache, first)

    def _cache_bias(self, cache: KeyValueCache, first: int) -> Float[Tensor, "#B #G Q S"] | None:
        hidden = cache.new.hidden(first, self.window)
        heads = None if self._place_bias is None else self._place_bias(cache.new.back(first))
        if hidden is None and heads is None:
            return None
        width, length, seen = cache.entries.shape[3], cache.new.length, cache.new.end - first
        groups, shared = self.num_kv_heads, self.num_heads // self.num_kv_heads
        bias = cache.entries.new_zeros(1, 1, 1, 1, 1, 1, 1)  # (B, G, H/G, T, W, P, W)
        if heads is not None:
            bias = bias + heads.unflatten(1, (groups, shared))[:, :, :, :, None, :, None]
        if hidden is not None:
            bias = bias.masked_fill(hidden[:, None, None], -torch.inf)
        return bias.expand(*bias.shape[:2], shared, length, width, seen, width).flatten(5).flatten(2, 4)

    def _turn_rows(self, projected: Float[Tensor, "N A"], places: Int[Tensor, "N"]) -> Float[Tensor, "N J K"]:
        """Queries, keys and values of each position: J = H + 2G heads."""
        heads = projected.unflatten(1, (-1, self.head_dim))
        return self._turn(heads, places) if self._turns else heads

    @property
    def _turns(self) -> bool:
        return self.normalise_qk or self.rotary is not None

    def _turn(self, heads: Float[Tensor, "*N J K"], places: Int[Tensor, "*N"]) -> Float[Tensor, "*N J K"]:
        """Queries and keys are normalised, or turned by their position."""
        query, key, value = heads.split([self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=-2)
        if self.normalise_qk:  # Dehghani et al. 2023, §2.1, without gains
            query, key = (nn.functional.rms_norm(t, (self.head_dim,)) for t in (query, key))
        if self.rotary is not None:
            query, key = self.rotary(query, places), self.rotary(key, places)
        return torch.cat([query, key, value], dim=-2)

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(b, T, (H + 2G)·K) → three of (b, H, T, K)."""
        sizes = [self.num_heads, self.num_kv_heads, self.num_kv_heads]
        heads = rows.unflatten(-1, (sum(sizes), self.head_dim)).transpose(1, 2)
        query, key, value = heads.split(sizes, dim=1)
        return query, self._share(key), self._share(value)

    def _share(self, heads: Tensor) -> Tensor:
        """(B, G, S, K) → (B, H, S, K): each key-value head serves a group of query heads."""
        repeats = self.num_heads // self.num_kv_heads
        return heads if repeats == 1 else heads.repeat_interleave(repeats, dim=1)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        if self.window is not None:
            return windowed_attend(
                query, key, value, mask, window=self.window, causal=self.causal, bias=self._place_bias, dropout=dropout
            )
        # Padding stands at the end, so under a causal mask no real position can see it.
        allowed = None if mask is None or self.causal else mask[:, None, None, :]
        bias = self._bias(query.shape[2], query.device)
        return attend(query, key, value, allowed, causal=self.causal, bias=bias, dropout=dropout)

    def _bias(self, length: int, device: torch.device) -> Float[Tensor, "H T T"] | None:
        place = torch.arange(length, device=device)
        return None if self._place_bias is None else self._place_bias(place.unsqueeze(-1) - place)

    @property
    def _place_bias(self) -> Callable[[Tensor], Tensor | None] | None:
        """`score_bias`, unless it is known to add nothing."""
        nothing = type(self).score_bias is SelfAttention.score_bias and self.slopes is None and self.relative is None
        return None if nothing else self.score_bias

    def score_bias(self, back: Int[Tensor, "*B Q S"]) -> Float[Tensor, "*B H Q S"] | None:
        """What is added to the score of a key that lies `back` positions behind its query."""
        if self.relative is not None:
            biases: Tensor = self.relative(back)
            return biases
        return None if self.slopes is None else -self.slopes[:, None, None] * back.abs().unsqueeze(-3)


class CrossAttention(nn.Module):
    """Every position of a target looks at every position of a source."""

    def __init__(
        self,
        model_dim: int,
        memory_dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = divide(model_dim, num_heads, "model_dim", "num_heads") if head_dim is None else head_dim
        self.dropout = dropout
        width = num_heads * self.head_dim
        self.query_projection = nn.Linear(model_dim, width, bias=bias)
        self.memory_projection = nn.Linear(memory_dim, 2 * width, bias=bias)
        self.out_projection = nn.Linear(width, model_dim, bias=bias)

    def forward(self, x: Packed, memory: Float[Tensor, "M E"] | LayerSource, pairing: Pairing | None = None) -> Packed:
        """Whole targets against their packed sources; or new tokens, as many of each line, against projected ones."""
        out: Tensor = self.out_projection(self._mix(self.query_projection(x), memory, pairing))
        return out

    def _mix(self, queries: Tensor, memory: Tensor | LayerSource, pairing: Pairing | None) -> Tensor:
        if isinstance(memory, LayerSource):
            keys, values, bias, record = memory
            query = self._split(queries, keys)
            if record is not None:
                record.append(self._weigh(query, memory).mean(1).flatten(0, 1))
            return merge_heads(mix(query, keys, values, bias)).flatten(0, 1)
        assert pairing is not None
        dropout = self.dropout if self.training else 0.0
        memories, target, source = self.memory_projection(memory), pairing.target.packing, pairing.source.packing
        if type(self) is CrossAttention and can_attend(queries, target, source) and serves(memories):
            heads = Heads(self.num_heads, self.num_heads, self.head_dim, dropout=dropout)
            return attend_packed(queries, memories, target, source, heads)
        pairs = self._pair(queries, memories, pairing)
        return pairing.target.collect([merge_heads(attend(*pair, dropout=dropout)) for pair in pairs])

    def weights(
        self, x: Packed, memory: Float[Tensor, "M E"] | LayerSource, pairing: Pairing | None = None
    ) -> Float[Tensor, "B H T S"]:
        """The attention weights of each target position, each head; of new tokens, those of a line's beams in turn."""
        queries = self.query_projection(x)
        if isinstance(memory, LayerSource):
            return self._weigh(self._split(queries, memory.keys), memory)
        assert pairing is not None
        pairs = self._pair(queries, self.memory_projection(memory), pairing)
        parts = [attention_weights(query, key, mask) for query, key, _, mask in pairs]
        return lay_out_weights(parts, pairing.target, pairing.source)

    def project(self, memory: Float[Tensor, "B S E"]) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"]]:
        """Keys and values of a padded source, made once for all steps."""
        key, value = self.memory_projection(memory).unflatten(-1, (2, self.num_heads, -1)).unbind(2)
        # Each head's keys side by side: every step reads them all.
        return key.transpose(1, 2).contiguous(), value.transpose(1, 2).contiguous()

    def _split(self, queries: Float[Tensor, "N A"], keys: Float[Tensor, "B H S K"]) -> Float[Tensor, "B H T K"]:
        return queries.view(len(keys), -1, self.num_heads, self.head_dim).transpose(1, 2)

    def _weigh(self, query: Float[Tensor, "B H T K"], source: LayerSource) -> Float[Tensor, "B H T S"]:
        return attention_weights(query, source.keys, None if source.bias is None else source.bias == 0)

    def _pair(
        self, queries: Tensor, memories: Tensor, pairing: Pairing
    ) -> list[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """Queries, keys, values and mask of each rectangle."""
        rectangles = zip(
            pairing.target.spread(queries), pairing.source.spread(memories), pairing.source.masks, strict=True
        )
        pairs = []
        for rows, source, mask in rectangles:
            query = rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            key, value = source.unflatten(-1, (2, self.num_heads, -1)).unbind(2)
            allowed = None if mask is None else mask[:, None, None, :]
            pairs.append((query, key.transpose(1, 2), value.transpose(1, 2), allowed))
        return pairs


def merge_heads(heads: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T D"]:
    """Lay the heads of a position side by side."""
    return heads.transpose(1, 2).flatten(2)


def lay_out_weights(parts: list[Tensor], queries: Groups, keys: Groups) -> Float[Tensor, "B H T S"]:
    """Weights of each group, put where their tokens stand in the padded batch."""
    (batch, length), (_, memory_length) = queries.packing.mask.shape, keys.packing.mask.shape
    out = parts[0].new_zeros(batch, parts[0].shape[1], length, memory_length)
    for part, members in zip(parts, queries.members, strict=True):
        for weights, sequence in zip(part, members, strict=True):
            row, places = queries.columns(sequence)
            _, seen = keys.columns(sequence)
            out[row][:, places[:, None], seen] = weights[:, : len(places), : len(seen)]
    return out


def divide(whole: int, parts: int, whole_name: str, parts_name: str) -> int:
    """whole / parts, which must come out even."""
    if whole % parts:
        raise ShapeError(f"{whole_name} = {whole} is not divisible by {parts_name} = {parts}")
    return whole // parts
