"""A state looks a source up, by any score function.

a_k = softmax_k( score(h_t, s_k) )        c_t = Σ_k a_k s_k            Bahdanau et al. 2015; Luong et al. 2015
"""

from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.attention import attend, attention_weights
from seqloom.nn.cache import SourceStates
from seqloom.nn.multihead import lay_out_weights
from seqloom.nn.packing import Pairing
from seqloom.nn.scores import Score


class Lookup(nn.Module):
    """The context of each state: the source's own states, mixed."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def forward(
        self, x: Float[Tensor, "N D"], memory: Float[Tensor, "M E"] | SourceStates, pairing: Pairing | None = None
    ) -> Float[Tensor, "N E"]:
        """Whole targets against their packed sources; or new states, as many of each line, against padded ones."""
        if isinstance(memory, SourceStates):
            if memory.record is not None:
                memory.record.append(self.weights(x, memory).flatten(0, 2))
            states = memory.states
            query, allowed = x.reshape(len(states), -1, x.shape[-1]), memory.mask.unsqueeze(1)
            return attend(query, states, states, allowed, score=self.score).flatten(0, 1)
        assert pairing is not None
        return pairing.target.collect([attend(q, s, s, m, score=self.score) for q, s, m in _pairs(x, memory, pairing)])

    def weights(
        self, x: Float[Tensor, "N D"], memory: Float[Tensor, "M E"] | SourceStates, pairing: Pairing | None = None
    ) -> Float[Tensor, "B 1 T S"]:
        """The attention weights of each state."""
        if isinstance(memory, SourceStates):
            query, allowed = x.reshape(len(memory.states), -1, x.shape[-1]), memory.mask.unsqueeze(1)
            return attention_weights(query, memory.states, allowed, score=self.score).unsqueeze(1)
        assert pairing is not None
        parts = [attention_weights(q, s, m, score=self.score).unsqueeze(1) for q, s, m in _pairs(x, memory, pairing)]
        return lay_out_weights(parts, pairing.target, pairing.source)


def _pairs(x: Tensor, memory: Tensor, pairing: Pairing) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    masks = [None if mask is None else mask.unsqueeze(1) for mask in pairing.source.masks]
    return list(zip(pairing.target.spread(x), pairing.source.spread(memory), masks, strict=True))
