"""The residual path and its normalisation.

        pre-norm   h ──┬── norm ── f ── dropout ──(+)──▶          f(LN(h)) + h          Xiong et al. 2020
                       └──────────────────────────┘
        post-norm  h ──┬── f ── dropout ──(+)── norm ──▶          LN(f(h) + h)          Vaswani et al. 2017
                       └──────────────────┘

LN(h) = (h − μ)/σ · g + b over the coordinates of one position; RMSNorm leaves μ and b out (Zhang & Sennrich 2019).
"""

from collections.abc import Callable
from typing import Literal, assert_never

from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.dropout import Dropout

Norm = Literal["layer", "rms"]
NormPosition = Literal["pre", "post"]


def build_norm(kind: Norm, dim: int, epsilon: float | None = None) -> nn.Module:
    """A normalisation over the last dimension; `epsilon` keeps it from dividing by 0."""
    match kind:
        case "layer":
            return nn.LayerNorm(dim, eps=1e-5 if epsilon is None else epsilon)
        case "rms":
            return nn.RMSNorm(dim, eps=1e-6 if epsilon is None else epsilon)
        case _ as unreachable:
            assert_never(unreachable)


class Residual(nn.Module):
    """Adds what a sublayer computes to what came in."""

    def __init__(
        self, dim: int, norm: Norm, position: NormPosition, dropout: float, epsilon: float | None = None
    ) -> None:
        super().__init__()
        self.position = position
        self.norm = build_norm(norm, dim, epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*N D"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "*N D"]:
        """X with the sublayer's contribution."""
        out: Tensor = x + self.dropout(sublayer(self.enter(x)))
        return out if self.position == "pre" else self.norm(out)

    def enter(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """What the sublayer reads."""
        return self.norm(x) if self.position == "pre" else x
