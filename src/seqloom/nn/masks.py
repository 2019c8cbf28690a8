"""Who may look at whom. True is "may look". A mask over tokens is (B, T); over pairs (…, queries, keys)."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seqloom.errors import ShapeError


def padding_mask(lengths: Int[Tensor, "B"], width: int | None = None) -> Bool[Tensor, "B T"]:
    """The first `lengths[b]` tokens of row b are real."""
    width = int(lengths.max()) if width is None else width
    if int(lengths.max()) > width:
        raise ShapeError(f"lengths holds {int(lengths.max())}, which is more than width = {width}")
    return torch.arange(width, device=lengths.device) < lengths.unsqueeze(-1)


def causal_mask(num_queries: int, num_keys: int, device: torch.device | None = None) -> Bool[Tensor, "Q S"]:
    """Each query sees the keys up to its own place; the last query stands at the last key."""
    allowed = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return allowed.tril(num_keys - num_queries)


def window_mask(length: int, window: int, *, causal: bool, device: torch.device | None = None) -> Bool[Tensor, "T T"]:
    """Each position sees `window` of them: the last ones and itself if causal, else about half to each side."""
    place = torch.arange(length, device=device)
    distance = place.unsqueeze(-1) - place  # how far back the key lies
    before, after = window_reach(window, causal=causal)
    return (distance <= before) & (distance >= -after)


def window_reach(window: int, *, causal: bool) -> tuple[int, int]:
    """How far a position sees back and ahead, `window` positions in all, itself among them."""
    return (window - 1, 0) if causal else (window // 2, (window - 1) // 2)


def document_mask(documents: Int[Tensor, "B T"]) -> Bool[Tensor, "B T T"]:
    """Each token sees the tokens of its own document."""
    return documents.unsqueeze(-1) == documents.unsqueeze(-2)
