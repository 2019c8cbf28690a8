"""Drawing a token: softmax(scores / temperature), cut down to its head, read backwards from one uniform number.

The uniform number u picks the token at which the cumulative sum, in the order of ids, passes u. A row's numbers come
from a generator of its own, so its text does not depend on its neighbours; and where a batch rounds differently, the
borders between tokens move by so little that it is as good as never seen.
"""

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from seqloom.decode.options import Sampling


def draw(scores: Tensor, sampling: Sampling, numbers: Tensor) -> Tensor:
    """A token for each row of (R, V) scores, given R numbers from 0 to 1."""
    probabilities = truncate((scores.double() / sampling.temperature).softmax(-1), sampling)
    cumulative = probabilities.cumsum(-1)
    passed = torch.searchsorted(cumulative, numbers.double().unsqueeze(1) * cumulative[:, -1:], right=True)
    last = (probabilities > 0).int().cumsum(-1).argmax(-1)  # where rounding carries u past the end
    return torch.minimum(passed.squeeze(1), last)


def truncate(probabilities: Tensor, sampling: Sampling) -> Tensor:
    """The head of each distribution, not renormalised; at least the most probable token is left."""
    p = probabilities
    if sampling.top_k is not None and sampling.top_k < p.shape[-1]:
        p = _keep_from(p, p.topk(sampling.top_k).values[:, -1:])
    if sampling.top_p is not None:
        ranked = p.sort(descending=True).values
        before = ranked.cumsum(-1) - ranked  # what the more probable ones have together
        enough = before >= sampling.top_p * p.sum(-1, keepdim=True)
        p = _keep_from(p, ranked.masked_fill(enough, 1.0).amin(-1, keepdim=True))
    if sampling.min_p is not None:
        p = _keep_from(p, sampling.min_p * p.amax(-1, keepdim=True))
    return p


def _keep_from(p: Tensor, least: Tensor) -> Tensor:
    return p.masked_fill(p < least, 0.0)


def make_numbers(seed: int, sample: int) -> Iterator[float]:
    """The uniform numbers of one sample of a line."""
    generator = random.Random(f"{seed}/{sample}")
    while True:
        yield generator.random()
