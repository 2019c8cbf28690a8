"""The Transformer block (SPEC M1–M5): a residual stream that attention and a feed-forward network write to.

    h ──▶ (+ self-attention) ──▶ (+ cross-attention, in a decoder that has a source) ──▶ (+ feed-forward) ──▶

Vaswani et al. 2017, §3.1. Encoder, decoder and decoder-only stacks are all made of this block.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.feedforward import FeedForward
from seqloom.nn.multihead import CrossAttention, KeyValue, SelfAttention
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
        self.hasten: Callable[[BlockStep], BlockStep] | None = None
        """Makes a step faster, where the model is in use and not in training (nn/layout.py)."""
        self.finish: Callable[[Tensor, Tensor], Tensor] | None = None
        """There too: of whole sequences, all that follows attention."""

    def forward(
        self,
        x: Float[Tensor, "N D"],
        packing: Packing,
        memory: Float[Tensor, "M E"] | None = None,
        pairing: Pairing | None = None,
    ) -> Float[Tensor, "N D"]:
        """Whole sequences, packed; `memory` is the packed source."""
        if self.finish is not None and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return self.finish(x, self.attention.mix(self.attention_residual.enter(x), packing))
        x = self.attention_residual(x, lambda h: self.attention(h, packing))
        if self.cross is not None and self.cross_residual is not None:
            x = self.cross_residual(x, lambda h: self.cross(h, memory, pairing))
        out: Tensor = self.feedforward_residual(x, self.feedforward)
        return out

    def bind(self) -> "BlockStep":
        """The function of a step: new tokens after `position` earlier ones, as many of each row.

        `memory` is the projected source, its bias, and where to add what the tokens look at in it.
        """
        attend = self.attention_residual.bind(self.attention.bind())
        transform = self.feedforward_residual.bind(self.feedforward.bind())
        look = None
        if self.cross is not None and self.cross_residual is not None:
            look = self.cross_residual.bind(self.cross.bind())

        def step(x: Tensor, past: KeyValue, position: int, ancestry: Tensor | None, *memory: Any) -> Tensor:
            x = attend(x, past, position, ancestry)
            if look is not None:
                x = look(x, *memory)
            return transform(x)

        return step if self.hasten is None else self.hasten(step)


BlockStep = Callable[..., Float[Tensor, "N D"]]
