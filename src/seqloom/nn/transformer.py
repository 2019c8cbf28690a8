"""The Transformer block: a residual stream to which attention and a feed-forward network add.

    h ──▶ (+ self-attention) ──▶ (+ cross-attention, in a decoder with a source) ──▶ (+ feed-forward) ──▶

Vaswani et al. 2017, §3.1. Encoders, decoders and decoder-only models are all stacks of this block.

        pre-norm   h ──┬── norm ── f ── dropout ──(+)──▶          f(LN(h)) + h          Xiong et al. 2020
                       └──────────────────────────┘
        post-norm  h ──┬── f ── dropout ──(+)── norm ──▶          LN(f(h) + h)          Vaswani et al. 2017
                       └──────────────────┘

LN(h) = (h − μ)/σ · g + b over the coordinates of one position; RMSNorm omits μ and b (Zhang & Sennrich 2019).

Each part can be left out, to see what it is for. Without the feed-forward network a block only averages; without
residual connections, f(LN(h)) or LN(f(h)) takes the place of h; without norms, LN(h) = h. A stack of blocks without any
of them is attention alone, whose outputs become the same for all positions as it gets deeper (Dong et al. 2021).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqloom.nn.cache import LayerCache, LayerSource
from seqloom.nn.dropout import Dropout
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.mixed_precision import add_dropped, normalise
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import Packing, Pairing

M = TypeVar("M", bound=nn.Module)


class Norm(NamedTuple):
    """The kind and the place of normalisation in the blocks of a stack."""

    kind: Literal["layer", "rms", "none"] = "layer"
    position: Literal["pre", "post"] = "pre"
    epsilon: float | None = None
    """Added to the variance, so that nothing is divided by 0."""

    def build(self, dim: int) -> nn.Module:
        """A normalisation over the last dimension."""
        if self.kind == "layer":
            return nn.LayerNorm(dim, eps=1e-5 if self.epsilon is None else self.epsilon)
        if self.kind == "rms":
            return nn.RMSNorm(dim, eps=1e-6 if self.epsilon is None else self.epsilon)
        return nn.Identity()


class Residual(nn.Module):
    """Adds the output of a sublayer to its input."""

    def __init__(self, dim: int, norm: Norm, dropout: float) -> None:
        super().__init__()
        self.position = norm.position
        self.norm = norm.build(dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*N D"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "*N D"]:
        """The sum of x and the sublayer's output."""
        out: Tensor = add_dropped(x, sublayer(self.enter(x)), self.dropout)
        return out if self.position == "pre" else self.norm(out)

    def enter(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """The input of the sublayer."""
        return normalise(self.norm, x) if self.position == "pre" else x


class NoResidual(Residual):
    """Puts the output of a sublayer in the place of its input: a block without residual connections."""

    def forward(self, x: Float[Tensor, "*N D"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "*N D"]:
        """The sublayer's output, normalised as it would be with x."""
        out: Tensor = self.dropout(sublayer(self.enter(x)))
        return out if self.position == "pre" else self.norm(out)


class TransformerBlock(nn.Module):
    """Self-attention, then cross-attention if there is one, then the feed-forward network if there is one."""

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention | None,
        feedforward: FeedForward | None,
        *,
        model_dim: int,
        norm: Norm,
        dropout: float,
        residual: bool = True,
    ) -> None:
        super().__init__()
        wrapper = Residual if residual else NoResidual
        self.attention = attention
        self.attention_residual = wrapper(model_dim, norm, dropout)
        self.cross = cross
        self.cross_residual = wrapper(model_dim, norm, dropout) if cross is not None else None
        self.feedforward = feedforward
        self.feedforward_residual = wrapper(model_dim, norm, dropout) if feedforward is not None else None

    def forward(
        self,
        x: Float[Tensor, "N D"],
        tokens: Packing | LayerCache,
        memory: Float[Tensor, "M E"] | LayerSource | None = None,
        pairing: Pairing | None = None,
    ) -> Float[Tensor, "N D"]:
        """Whole sequences and their sources, both packed; or new tokens, with the cache of earlier ones."""
        x = self.attention_residual(x, lambda h: self.attention(h, tokens))
        if self.cross is not None and self.cross_residual is not None:
            x = self.cross_residual(x, lambda h: self.cross(h, memory, pairing))
        if self.feedforward is None or self.feedforward_residual is None:
            return x
        return self.feedforward_residual(x, self.feedforward)


class Stack(nn.ModuleList, Generic[M]):
    """Layers of one type, in order: a `ModuleList` that keeps their type, for readers and type checkers."""

    recompute = False
    """Whether a layer's activations are recomputed for the gradient instead of kept (activation checkpointing)."""

    def __init__(self, modules: Iterable[M]) -> None:
        super().__init__(modules)

    def run(self, layer: M, *inputs: Any) -> Tensor:
        """The output of a layer, with checkpointing if `recompute` is set."""
        again = self.recompute and self.training
        return checkpoint(layer, *inputs, use_reentrant=False) if again else layer(*inputs)

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[M]: ...

        def __getitem__(self, index: int) -> M: ...  # type: ignore[override]
