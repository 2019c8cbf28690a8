"""Multi-head attention with any score function, each head with score weights of its own.

`SelfAttention` and `CrossAttention` score by q·k / √d_k, which fast kernels compute. These subclasses score by any of
the functions in `nn/attention.py`, in the open. An additive score costs more than a product: it holds a vector of d_k
numbers for each pair of a query and a key.

Rotary positions make a dot product depend on the distance of two tokens only. A bilinear or additive score of rotated
queries and keys depends on where they stand, too.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from seqloom.nn.attention import Score, attention_weights
from seqloom.nn.cache import LayerSource
from seqloom.nn.multihead import CrossAttention, SelfAttention


class ScoredSelfAttention(SelfAttention):
    """Every position of a sequence attends to the others, by any score function."""

    def __init__(self, score: Score, *sizes: int, **options: Any) -> None:
        """The sizes and options are those of `SelfAttention`."""
        super().__init__(*sizes, **options)
        self.score = score

    @property
    def score_function(self) -> Score:
        """The given one."""
        return self.score

    def _attend_slots(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        return self._weigh_slots(query, key, bias) @ value

    def _weigh_slots(
        self, query: Float[Tensor, "B G Q K"], key: Float[Tensor, "B G S K"], bias: Float[Tensor, "#B #G Q S"] | None
    ) -> Float[Tensor, "B G Q S"]:
        """The queries of all heads of a group come in one row; a score function wants the heads apart."""
        batch, groups, _, dim = query.shape
        if bias is not None:
            bias = bias.expand(-1, groups, -1, -1).reshape(len(bias), self.num_heads, -1, bias.shape[-1])
        heads = query.reshape(batch, self.num_heads, -1, dim)
        weights = attention_weights(heads, self._share(key), score=self.score, bias=bias)
        return weights.reshape(*query.shape[:-1], -1)


class ScoredCrossAttention(CrossAttention):
    """Every position of a target attends to every position of a source, by any score function."""

    def __init__(self, score: Score, *sizes: int, **options: Any) -> None:
        """The sizes and options are those of `CrossAttention`."""
        super().__init__(*sizes, **options)
        self.score = score

    @property
    def score_function(self) -> Score:
        """The given one."""
        return self.score

    def _attend_source(self, query: Float[Tensor, "B H T K"], source: LayerSource) -> Float[Tensor, "B H T K"]:
        return self._weigh(query, source) @ source.values
