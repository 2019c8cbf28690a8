"""Multi-head attention: self and cross (SPEC A3, A5, A7).

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
from seqloom.nn.attention import attend, attention_weights
from seqloom.nn.bind import bind
from seqloom.nn.masks import window_mask
from seqloom.nn.packed_attention import Heads, Looks, attend_packed, can_attend
from seqloom.nn.packing import Groups, Packing, Pairing
from seqloom.nn.positions import RelativeBias, Rotary, alibi_slopes
from seqloom.nn.window import windowed_attend

Packed = Float[Tensor, "N D"]
KeyValue = Float[Tensor, "B A P W K"]
"""Keys, then values, of G key-value heads (A = 2G), with room for P tokens of each of the W beams of a line."""
SourceKeyValue = tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"]]
"""Keys and values of the S tokens of a source."""


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

    def forward(self, x: Packed, packing: Packing) -> Packed:
        """Whole sequences; causal ones read from their end if `reverse`."""
        out: Tensor = self.out_projection(self.mix(x, packing))
        return out

    def mix(self, x: Packed, packing: Packing) -> Float[Tensor, "N A"]:
        """What the heads of each position mix, side by side."""
        heads: Tensor = self.in_projection(x)
        if self._is_plain and can_attend(heads, packing):
            return attend_packed(heads, None, packing, packing, self._describe(packing))
        return self._attend_groups(heads, packing)

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
        return self.window is None and self.slopes is None and self.relative is None

    def _describe(self, packing: Packing) -> Heads:
        looks: Looks = "all" if not self.causal else "future" if self.reverse else "past"
        turns = None if self.rotary is None else self.rotary.tabulate(int(packing.counts.max(initial=0)))
        dropout = self.dropout if self.training else 0.0
        return Heads(self.num_heads, self.num_kv_heads, self.head_dim, looks, self.normalise_qk, turns, dropout)

    def weights(self, x: Packed, packing: Packing) -> Float[Tensor, "B H T T"]:
        """What each position looks at, each head; 0 for padding and across documents."""
        groups = packing.groups(reverse=self.reverse)
        heads = self._turn_rows(self.in_projection(x), packing.positions).flatten(1)
        parts = []
        for rows, mask in zip(groups.spread(heads), groups.masks, strict=True):
            query, key, _ = self._split(rows)
            length = rows.shape[1]
            allowed = None if mask is None else mask[:, None, None, :]
            if self.window is not None:
                near = window_mask(length, self.window, causal=self.causal, device=x.device)
                allowed = near if allowed is None else near & allowed
            bias = self._bias(length, length)
            parts.append(attention_weights(query, key, allowed, causal=self.causal, bias=bias))
        return lay_out_weights(parts, groups, groups)

    def start(self, batch_size: int, capacity: int) -> KeyValue:
        """Room for the keys and values of `capacity` tokens."""
        shape = (batch_size, 2 * self.num_kv_heads, capacity, 1, self.head_dim)
        return self.in_projection.weight.new_empty(shape)

    def bind(self) -> Callable[[Packed, KeyValue, int, Tensor | None], Packed]:
        """The function of a step: new tokens after `position` earlier ones, their keys and values written into `past`.

        The beams of a line are further queries against the keys of all of them; `ancestry` is 0 where a beam's own past
        stands, −∞ elsewhere, so that beams are reordered without moving what is kept: (B, W, P, W).
        """
        project, project_out = bind(self.in_projection), bind(self.out_projection)
        heads, groups, dim, window = self.num_heads, self.num_kv_heads, self.head_dim, self.window
        turn, make_bias = self._turn, self._step_bias
        turns, plain = self._turns, self.slopes is None and self.relative is None

        def step(x: Packed, past: KeyValue, position: int, ancestry: Tensor | None = None) -> Packed:
            batch, _, room, width, _ = past.shape
            length = x.shape[0] // (batch * width)
            end = position + length
            if end > room:
                raise ShapeError(f"the cache has room for {room} tokens but {end} were given; start with a larger one")
            projected = project(x).view(batch, width, length, heads + 2 * groups, dim)
            if turns:
                places = torch.arange(position, end, device=x.device).expand(batch, width, length)
                projected = turn(projected, places)
            projected = projected.permute(0, 3, 2, 1, 4)  # (B, H + 2G, T, W, K)
            query, new = projected.narrow(1, 0, heads), projected.narrow(1, heads, 2 * groups)
            past.narrow(2, position, length).copy_(new)
            first = 0 if window is None else max(0, position - window + 1)
            seen = past.narrow(2, first, end - first).flatten(2, 3)  # (B, 2G, P·W, K)
            bias = None
            if length > 1 or ancestry is not None or not plain:
                bias = make_bias(length, end - first, None if ancestry is None else ancestry[:, :, first:])
            # Query heads that share a key-value head, new tokens and beams are all queries: (B, G, H/G·T·W, K).
            query = query.reshape(batch, groups, -1, dim)
            mixed = mix(query, seen.narrow(1, 0, groups), seen.narrow(1, groups, groups), bias)
            mixed = mixed.view(batch, heads, length, width, dim).permute(0, 3, 2, 1, 4)
            return project_out(mixed.reshape(x.shape[0], heads * dim))

        return step

    def _step_bias(self, length: int, seen: int, ancestry: Float[Tensor, "B W P W"] | None) -> Tensor | None:
        """What is added to the scores of new tokens: (·B, ·G, H/G·T·W, P·W), or None."""
        shared, heads = self.num_heads // self.num_kv_heads, self._bias(length, seen)
        if length == 1 and heads is None and shared == 1 and ancestry is not None:
            return ancestry.flatten(2).unsqueeze(1)
        bias = self.in_projection.weight.new_zeros(1, 1, 1, 1, 1, 1, 1)  # (B, G, H/G, T, W, P, W)
        if length > 1:
            near = window_mask(seen, self.window or seen, causal=True, device=bias.device)[-length:]
            bias = bias.masked_fill(~near[:, None, :, None], -torch.inf)
        if heads is not None:
            bias = bias + heads.unflatten(0, (self.num_kv_heads, -1))[:, :, :, None, :, None]
        if ancestry is not None:
            bias = bias + ancestry[:, None, None, None]
        width = 1 if ancestry is None else ancestry.shape[1]
        shape = (*bias.shape[:2], shared, length, width, seen, width)
        return bias.expand(shape).flatten(5, 6).flatten(2, 4)

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
                query, key, value, mask, window=self.window, causal=self.causal, slopes=self.slopes, dropout=dropout
            )
        # Padding stands at the end, so under a causal mask no real position can see it.
        allowed = None if mask is None or self.causal else mask[:, None, None, :]
        bias = self._bias(query.shape[2], key.shape[2])
        return attend(query, key, value, allowed, causal=self.causal, bias=bias, dropout=dropout)

    def _bias(self, num_queries: int, num_keys: int) -> Tensor | None:
        if self.relative is not None:
            biases: Tensor = self.relative(num_queries, num_keys)
            return biases
        if self.slopes is None:
            return None
        place = torch.arange(num_keys, device=self.slopes.device)
        distance = (place[num_keys - num_queries :].unsqueeze(-1) - place).abs()
        return -self.slopes[:, None, None] * distance  # (H, Q, S)


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

    def forward(self, x: Packed, memory: Float[Tensor, "M E"], pairing: Pairing) -> Packed:
        """Whole targets against their packed sources."""
        dropout = self.dropout if self.training else 0.0
        queries, memories = self.query_projection(x), self.memory_projection(memory)
        target, source = pairing.target.packing, pairing.source.packing
        if can_attend(queries, target, source):
            heads = Heads(self.num_heads, self.num_heads, self.head_dim, dropout=dropout)
            mixed = attend_packed(queries, memories, target, source, heads)
        else:
            pairs = self._pair(queries, memories, pairing)
            mixed = pairing.target.collect([merge_heads(attend(*pair, dropout=dropout)) for pair in pairs])
        out: Tensor = self.out_projection(mixed)
        return out

    def weights(self, x: Packed, memory: Float[Tensor, "M E"], pairing: Pairing) -> Float[Tensor, "B H T S"]:
        """What each target position looks at, each head."""
        pairs = self._pair(self.query_projection(x), self.memory_projection(memory), pairing)
        parts = [attention_weights(query, key, mask) for query, key, _, mask in pairs]
        return lay_out_weights(parts, pairing.target, pairing.source)

    def project(self, memory: Float[Tensor, "B S E"]) -> SourceKeyValue:
        """Keys and values of a padded source, made once for all steps."""
        key, value = self.memory_projection(memory).unflatten(-1, (2, self.num_heads, -1)).unbind(2)
        # Each head's keys side by side: every step reads them all.
        return key.transpose(1, 2).contiguous(), value.transpose(1, 2).contiguous()

    def bind(self) -> Callable[[Packed, SourceKeyValue, Tensor | None, list[Tensor] | None], Packed]:
        """The function of a step: new tokens, as many of each line, against the projected source its beams share.

        `bias` is −∞ where a source has padding: (B, 1, 1, S). How much each token looks at each source token, the mean
        over heads, is added to `looks` where it is given.
        """
        project, project_out = bind(self.query_projection), bind(self.out_projection)
        heads, dim = self.num_heads, self.head_dim

        def step(
            x: Packed, memory: SourceKeyValue, bias: Tensor | None = None, looks: list[Tensor] | None = None
        ) -> Packed:
            key, value = memory
            query = project(x).view(key.shape[0], -1, heads, dim).transpose(1, 2)
            if looks is not None:
                weights = attention_weights(query, key, None if bias is None else bias == 0)
                looks.append(weights.mean(1).flatten(0, 1))  # (N, S)
            return project_out(mix(query, key, value, bias).transpose(1, 2).reshape(x.shape[0], heads * dim))

        return step

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
