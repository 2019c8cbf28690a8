"""log P of given tokens, without ever holding the logits of all of them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.nn.embeddings import OutputLayer

_LOGITS = 1 << 23  # numbers at a time


def score_tokens(output: OutputLayer, states: Float[Tensor, "N D"], targets: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    """log softmax(W h + b) at each target, in natural logarithms."""
    chunk = max(1, _LOGITS // len(output.weight))
    parts = []
    for rows, wanted in zip(states.split(chunk), targets.split(chunk), strict=True):
        logits = output(rows).float()
        parts.append(logits.gather(1, wanted.unsqueeze(1)).squeeze(1) - logits.logsumexp(1))
    return torch.cat(parts) if parts else states.new_zeros(0)
