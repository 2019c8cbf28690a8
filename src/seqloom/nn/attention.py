"""Attention as a soft dictionary: look a query up among keys, get the weighted mean of their values.

    weights = softmax_j( score(q_i, k_j) )        output_i = Σ_j weights_ij v_j

A mask adds a very low number to a score before the softmax, so that a masked weight is exactly 0; a query with nothing
to attend to gets zeros, not NaN. `attention_weights` is the mathematics in the open. `attend` does not form the weights
where PyTorch's fused kernel is faster: on a CPU, where there are many keys.

A score says how well a key matches a query. There are four score functions of a query q and a key k (in a recurrent
model, the decoder state h and the encoder state s):

    dot           q·k                                  Luong et al. 2015, §3.1
    scaled dot    q·k / √d_k                           Vaswani et al. 2017, §3.2.1
    bilinear      qᵀ W k                               Luong et al. 2015, §3.1 ("general")
    additive      vᵀ tanh(W_q q + W_k k)               Bahdanau et al. 2015, §A.1.2

The additive form is the same as wᵀ tanh(W₁ [q; k]): W₁ is W_q and W_k side by side. With `num_heads`, each head has
matrices of its own.

In a mask, True means "may be seen". A mask over tokens is (B, T), a mask over pairs (…, queries, keys).
"""

import math
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqloom.errors import ShapeError
from seqloom.native.library import is_plain
from seqloom.nn.cache import SourceStates
from seqloom.nn.dropout import drop
from seqloom.nn.headwise import HeadwiseLinear
from seqloom.nn.packing import Pairing, first_real, masked_mean, unpack_pairs

# Up to about this many keys, the open form is faster on a CPU than the fused kernel: with gradients, and without.
_FEW_TO_TRAIN, _FEW_TO_USE = 128, 40

Query = Float[Tensor, "*B Q D"]
Key = Float[Tensor, "*B S E"]
Value = Float[Tensor, "*B S V"]
Scores = Float[Tensor, "*B Q S"]
Mask = Bool[Tensor, "*#B #Q #S"]
Bias = Float[Tensor, "*#B #Q #S"]


class Dot(nn.Module):
    """q·k."""

    def forward(self, query: Query, key: Key) -> Scores:
        """Score every query against every key."""
        return query @ key.transpose(-2, -1)


class ScaledDot(nn.Module):
    """q·k / √d_k: a sum of d_k products has d_k times the variance; dividing keeps the softmax from saturating."""

    def forward(self, query: Query, key: Key) -> Scores:
        """Score every query against every key."""
        return (query / math.sqrt(key.shape[-1])) @ key.transpose(-2, -1)


class Bilinear(nn.Module):
    """qᵀ W k: a learned similarity; query and key may differ in width."""

    def __init__(self, query_dim: int, key_dim: int, num_heads: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*() if num_heads is None else (num_heads,), query_dim, key_dim))
        for matrix in self.weight.detach().view(-1, query_dim, key_dim):
            nn.init.xavier_uniform_(matrix)

    def forward(self, query: Query, key: Key) -> Scores:
        """Score every query against every key."""
        return query @ self.weight @ key.transpose(-2, -1)


class Additive(nn.Module):
    """vᵀ tanh(W_q q + W_k k): a network with one hidden layer."""

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int, num_heads: int | None = None) -> None:
        super().__init__()
        linear = nn.Linear if num_heads is None else partial(HeadwiseLinear, num_heads)
        self.query = linear(query_dim, hidden_dim)
        self.key = linear(key_dim, hidden_dim, bias=False)
        self.vector = linear(hidden_dim, 1, bias=False)

    def forward(self, query: Query, key: Key) -> Scores:
        """Score every query against every key."""
        hidden = self.query(query).unsqueeze(-2) + self.key(key).unsqueeze(-3)  # (*B, Q, S, hidden)
        return self.vector(torch.tanh(hidden).flatten(-3, -2)).view(hidden.shape[:-1])


Pooling = Literal["attention", "mean", "max", "first"]
Score = Dot | ScaledDot | Bilinear | Additive
SCALED_DOT = ScaledDot()


def attend(
    query: Query,
    key: Key,
    value: Value,
    mask: Mask | None = None,
    *,
    score: Score = SCALED_DOT,
    causal: bool = False,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "*B Q V"]:
    """The mean of the values, weighted by how well their keys match; `causal` aligns the last query and key."""
    _check(query, key, value, mask, score)
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    few = _FEW_TO_TRAIN if torch.is_grad_enabled() else _FEW_TO_USE
    plain_dot = is_plain(score, Dot)
    if not (plain_dot or is_plain(score, ScaledDot)) or (query.device.type == "cpu" and num_keys <= few):
        weights = attention_weights(query, key, mask, score=score, causal=causal, bias=bias)
        return (drop(weights, dropout) if dropout else weights) @ value
    plain = mask is None and bias is None
    if causal and not (plain and num_queries == num_keys):
        mask = _both(mask, causal_mask(num_queries, num_keys, query.device) if num_queries > 1 else None)
        causal = False
    if bias is not None:
        mask = bias if mask is None else torch.where(mask, bias, -torch.inf)
    scale = 1.0 if plain_dot else None
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale=scale)


def attention_weights(
    query: Query,
    key: Key,
    mask: Mask | None = None,
    *,
    score: Score = SCALED_DOT,
    causal: bool = False,
    bias: Bias | None = None,
) -> Float[Tensor, "*B Q S"]:
    """The weights of the values in `attend`: each row sums to 1, or is all 0 if everything is masked."""
    scores: Tensor = score(query, key)
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = _both(mask, causal_mask(query.shape[-2], key.shape[-2], query.device))
    if mask is None:
        return scores.softmax(-1)
    # Added, because the gradient of a sum is free; half of the lowest number, so that adding a bias cannot overflow.
    lowest = torch.finfo(scores.dtype).min / 2
    weights = (scores + scores.new_zeros(mask.shape).masked_fill_(~mask, lowest)).softmax(-1)
    seen = mask.any(-1, keepdim=True)
    return weights if _all(seen) else weights.masked_fill(~seen, 0.0)


def causal_mask(num_queries: int, num_keys: int, device: torch.device | None = None) -> Bool[Tensor, "Q S"]:
    """Each query sees the keys up to its own position; the last query has the position of the last key."""
    allowed = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return allowed.tril(num_keys - num_queries)


def _all(mask: Tensor) -> bool:
    """Whether all are true, if that can be known without waiting for another device."""
    return mask.device.type == "cpu" and not torch.compiler.is_compiling() and bool(mask.all())


def _both(mask: Tensor | None, other: Tensor | None) -> Tensor | None:
    if mask is None or other is None:
        return mask if other is None else other
    return mask & other


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, score: Score) -> None:
    if isinstance(score, Dot | ScaledDot) and query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"query has width {query.shape[-1]} but key has width {key.shape[-1]}; a dot product needs equal widths"
        )
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(f"key has {key.shape[-2]} positions but value has {value.shape[-2]}; each key needs its value")
    if mask is None:
        return
    expected = (*query.shape[:-1], key.shape[-2])
    try:
        fits = torch.broadcast_shapes(mask.shape, expected) == torch.Size(expected)
    except RuntimeError:
        fits = False
    if not fits:
        raise ShapeError(
            f"mask has shape {tuple(mask.shape)}, which does not broadcast to {expected} (… queries × keys)"
        )


class GlobalAttention(nn.Module):
    """A state attends to all states of a source, with any score function. Bahdanau et al. 2015; Luong et al. 2015.

    a_k = softmax_k( score(h_t, s_k) )        c_t = Σ_k a_k s_k
    """

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def forward(
        self, x: Float[Tensor, "N D"], memory: Float[Tensor, "M E"] | SourceStates, pairing: Pairing | None = None
    ) -> Float[Tensor, "N E"]:
        """Whole targets attend to their packed sources; or new states, the same number per line, to padded ones."""
        if isinstance(memory, SourceStates) and memory.record is not None:
            memory.record.append(self.weights(x, memory).flatten(0, 2))
        parts = [attend(q, s, s, mask, score=self.score) for q, s, mask in _pair(x, memory, pairing)]
        return parts[0].flatten(0, 1) if pairing is None else pairing.target.collect(parts)

    def weights(
        self, x: Float[Tensor, "N D"], memory: Float[Tensor, "M E"] | SourceStates, pairing: Pairing | None = None
    ) -> Float[Tensor, "B 1 T S"]:
        """The attention weights that `forward` uses."""
        pairs = _pair(x, memory, pairing)
        parts = [attention_weights(q, s, mask, score=self.score).unsqueeze(1) for q, s, mask in pairs]
        return parts[0] if pairing is None else unpack_pairs(parts, pairing.target, pairing.source)


def _pair(
    x: Tensor, memory: Tensor | SourceStates, pairing: Pairing | None
) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """Rectangles of target states, source states and their mask."""
    if isinstance(memory, SourceStates):
        return [(x.reshape(len(memory.states), -1, x.shape[-1]), memory.states, memory.mask.unsqueeze(1))]
    assert pairing is not None
    masks = [None if mask is None else mask.unsqueeze(1) for mask in pairing.source.masks]
    return list(zip(pairing.target.spread(x), pairing.source.spread(memory), masks, strict=True))


class Pool(nn.Module):
    """One vector for each row of states; padding does not count, and an empty row gives zeros.

    attention, with a learned query w:    α = softmax_j(w·h_j)        h̄ = Σ_j α_j h_j
    """

    def __init__(self, kind: Pooling, dim: int) -> None:
        super().__init__()
        self.kind = kind
        self.score = Dot()
        self.query = nn.Parameter(torch.zeros(1, dim)) if kind == "attention" else None  # at first, the mean

    def forward(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
        """Summarise each row."""
        if not mask.shape[1]:
            return states.new_zeros(states.shape[0], states.shape[2])
        if self.kind == "attention":
            query = self._expand_query(states)
            return attend(query, states, states, mask.unsqueeze(1), score=self.score).squeeze(1)
        if self.kind == "max":
            highest = states.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
            return highest.masked_fill(~mask.any(1, keepdim=True), 0.0)
        return masked_mean(states, mask) if self.kind == "mean" else first_real(states, mask)

    def weights(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1 1 T"]:
        """The attention weights of each row's tokens."""
        query = self._expand_query(states)
        return attention_weights(query, states, mask.unsqueeze(1), score=self.score).unsqueeze(1)

    def _expand_query(self, states: Tensor) -> Float[Tensor, "B 1 D"]:
        assert self.query is not None
        return self.query.expand(states.shape[0], 1, -1)
