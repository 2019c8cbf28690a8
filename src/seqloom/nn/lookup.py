"""A state looks a source up, by any score function (SPEC A8).

a_k = softmax_k( score(h_t, s_k) )        c_t = Σ_k a_k s_k            Bahdanau et al. 2015; Luong et al. 2015
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqloom.nn.attention import attend, attention_weights
from seqloom.nn.multihead import lay_out_weights
from seqloom.nn.packing import Pairing
from seqloom.nn.scores import Score


class Lookup(nn.Module):
    """The context of each state: the source's own states, mixed."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def forward(self, x: Float[Tensor, "N D"], memory: Float[Tensor, "M E"], pairing: Pairing) -> Float[Tensor, "N E"]:
        """Whole targets against their packed sources."""
        return pairing.target.collect([attend(q, s, s, m, score=self.score) for q, s, m in _pairs(x, memory, pairing)])

    def weights(
        self, x: Float[Tensor, "N D"], memory: Float[Tensor, "M E"], pairing: Pairing
    ) -> Float[Tensor, "B 1 T S"]:
        """What each state looked at."""
        parts = [attention_weights(q, s, m, score=self.score).unsqueeze(1) for q, s, m in _pairs(x, memory, pairing)]
        return lay_out_weights(parts, pairing.target, pairing.source)

    def step(
        self,
        x: Float[Tensor, "N D"],
        memory: Float[Tensor, "B S E"],
        mask: Bool[Tensor, "B S"],
        looks: list[Tensor] | None = None,
    ) -> Float[Tensor, "N E"]:
        """New states, as many of each line, against the padded source; `looks` as in CrossAttention."""
        query, allowed = x.reshape(len(memory), -1, x.shape[-1]), mask.unsqueeze(1)
        if looks is not None:
            looks.append(attention_weights(query, memory, allowed, score=self.score).flatten(0, 1))  # (N, S)
        return attend(query, memory, memory, allowed, score=self.score).flatten(0, 1)


def _pairs(x: Tensor, memory: Tensor, pairing: Pairing) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    masks = [None if mask is None else mask.unsqueeze(1) for mask in pairing.source.masks]
    return list(zip(pairing.target.spread(x), pairing.source.spread(memory), masks, strict=True))
