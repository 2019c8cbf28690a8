"""Attention as a soft dictionary: look a query up among keys, get the mixture of their values (SPEC A1–A4, A6).

    weights = softmax_j( score(q_i, k_j) )        output_i = Σ_j weights_ij v_j

A mask is applied before the softmax as −∞, so that a masked weight is exactly 0; a query with nothing to look at gets
zeros, not NaN. `attend` is the fast path and never forms the weights where PyTorch has a fused kernel;
`attention_weights` is the same mathematics in the open, for those who want to look.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from weft.errors import ShapeError
from weft.nn.masks import causal_mask
from weft.nn.scores import Dot, ScaledDot, Score

SCALED_DOT = ScaledDot()

Query = Float[Tensor, "*B Q D"]
Key = Float[Tensor, "*B S E"]
Value = Float[Tensor, "*B S V"]
Mask = Bool[Tensor, "*#B #Q #S"]
Bias = Float[Tensor, "*#B #Q #S"]


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
    """Mix the values by how well their keys answer each query; `causal` aligns the last query with the last key."""
    _check(query, key, value, mask, score)
    if not isinstance(score, Dot | ScaledDot):
        weights = attention_weights(query, key, mask, score=score, causal=causal, bias=bias)
        return F.dropout(weights, dropout) @ value
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    plain = mask is None and bias is None
    if causal and not (plain and num_queries == num_keys):
        mask = _both(mask, causal_mask(num_queries, num_keys, query.device) if num_queries > 1 else None)
        causal = False
    if bias is not None:
        mask = bias if mask is None else torch.where(mask, bias, -torch.inf)
    scale = 1.0 if isinstance(score, Dot) else None
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
    """The weights `attend` mixes with: rows sum to 1, or are all 0 where everything is masked."""
    scores: Tensor = score(query, key)
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = _both(mask, causal_mask(query.shape[-2], key.shape[-2], query.device))
    if mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)


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
