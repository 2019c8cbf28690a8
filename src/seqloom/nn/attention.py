"""Attention as a soft dictionary: look a query up among keys, get the mixture of their values.

    weights = softmax_j( score(q_i, k_j) )        output_i = Σ_j weights_ij v_j

A mask is applied before the softmax as a number below all others, so that a masked weight is exactly 0; a query with
nothing to look at gets zeros, not NaN. `attention_weights` is the mathematics in the open; `attend` never forms the
weights where a fused kernel of PyTorch's is faster, which on processors is where there are many keys.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from seqloom.errors import ShapeError
from seqloom.nn.dropout import drop
from seqloom.nn.masks import causal_mask
from seqloom.nn.plain import is_plain
from seqloom.nn.scores import Dot, ScaledDot, Score

SCALED_DOT = ScaledDot()
# Up to about as many keys the open form was faster than the fused kernel on a processor, the more so the fewer there
# are: with its gradient, and without one.
_FEW_TO_TRAIN, _FEW_TO_USE = 128, 40

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
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    few = _FEW_TO_TRAIN if torch.is_grad_enabled() else _FEW_TO_USE
    plain_dot = is_plain(score, Dot)
    if not (plain_dot or is_plain(score, ScaledDot)) or (query.device.type == "cpu" and num_keys <= few):
        weights = attention_weights(query, key, mask, score=score, causal=causal, bias=bias)
        return drop(weights, dropout) @ value
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
    """The weights `attend` mixes with: rows sum to 1, or are all 0 where everything is masked."""
    scores: Tensor = score(query, key)
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = _both(mask, causal_mask(query.shape[-2], key.shape[-2], query.device))
    if mask is None:
        return scores.softmax(-1)
    # A sum, whose gradient costs nothing; half of the least number, so that a bias beside it does not overflow.
    lowest = torch.finfo(scores.dtype).min / 2
    weights = (scores + scores.new_zeros(mask.shape).masked_fill_(~mask, lowest)).softmax(-1)
    seen = mask.any(-1, keepdim=True)
    return weights if _all(seen) else weights.masked_fill(~seen, 0.0)


def _all(mask: Tensor) -> bool:
    """Whether it is known, without waiting for another device, that all are true."""
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
