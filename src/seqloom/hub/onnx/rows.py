"""What padded rows need in a graph: embeddings, reversal, neighbours. All shapes are free."""

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.nn.embeddings import TokenEmbedding


def embed(embedding: TokenEmbedding, ids: Tensor) -> Tensor:
    """The vector of each id; that it has one is not asked in a graph."""
    vectors = F.embedding(ids, embedding.weight) * embedding.factor
    return vectors if embedding.segments is None else vectors + embedding.segments(ids)


def reverse_rows(x: Tensor, mask: Tensor) -> Tensor:
    """Each row from its own last token to its first, what follows as it is: (B, T, D)."""
    lengths, positions = mask.sum(1, keepdim=True), torch.arange(x.shape[1])
    order = torch.where(positions < lengths, lengths - 1 - positions, positions)
    return x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.shape[2]))


def shift(x: Tensor, offset: int) -> Tensor:
    """For each token its neighbour `offset` positions on, zeros beyond the ends: (B, T, D)."""
    length = x.shape[1]
    return F.pad(x, (0, 0, max(0, -offset), max(0, offset)))[:, max(0, offset) :][:, :length]
