"""The Transformer block: a residual stream that attention and a feed-forward network write to.

    h ──▶ (+ self-attention) ──▶ (+ cross-attention, in a decoder that has a source) ──▶ (+ feed-forward) ──▶

Vaswani et al. 2017, §3.1. Encoder, decoder and decoder-only stacks are all made of this block.
"""

from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.cache import KeyValueCache, LayerSource
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing
from seqloom.nn.residual import Norm, NormPosition, Residual


class TransformerBlock(nn.Module):
    """Self-attention, then cross-attention if there is one, then the feed-forward network."""

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention | None,
        feedforward: FeedForward,
        *,
        model_dim: int,
        norm: Norm,
        norm_position: NormPosition,
        dropout: float,
        norm_epsilon: float | None = None,
    ) -> None:
        super().__init__()

        def wrap() -> Residual:
            return Residual(model_dim, norm, norm_position, dropout, norm_epsilon)

        self.attention = attention
        self.attention_residual = wrap()
        self.cross = cross
        self.cross_residual = wrap() if cross is not None else None
        self.feedforward = feedforward
        self.feedforward_residual = wrap()

    def forward(
        self,
        x: Float[Tensor, "N D"],
        tokens: Packing | KeyValueCache,
        memory: Float[Tensor, "M E"] | LayerSource | None = None,
        pairing: Pairing | None = None,
    ) -> Float[Tensor, "N D"]:
        """Whole sequences, packed, beside their packed sources; or new tokens beside what earlier ones left."""
        x = self.attention_residual(x, lambda h: self.attention(h, tokens))
        if self.cross is not None and self.cross_residual is not None:
            x = self.cross_residual(x, lambda h: self.cross(h, memory, pairing))
        out: Tensor = self.feedforward_residual(x, self.feedforward)
        return out
