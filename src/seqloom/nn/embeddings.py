"""Embeddings turn ids into vectors; the output layer turns vectors into scores over the vocabulary.

The output layer may share the embedding's matrix: logits = W_emb·h + b (Press & Wolf 2017; Inan et al. 2017).

A table of V × D numbers may be factorised into V × E and E × D: x = P·e, with a narrow vector e for each token and one
projection P for all (ALBERT, Lan et al. 2020, §3.1). A tied output layer then shares both: logits = W_emb·Pᵀh + b, the
products of h with the projected vectors.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.errors import ShapeError
from seqloom.nn.dropout import Dropout
from seqloom.types import TokenBatch


class SegmentEmbedding(nn.Module):
    """A learned vector for each part of an input; a separator ends a part (Devlin et al. 2019, §3)."""

    def __init__(self, count: int, dim: int, separator: int) -> None:
        super().__init__()
        self.separator = separator
        self.weight = nn.Parameter(torch.randn(count, dim) * 0.02)

    def forward(
        self, ids: Int[Tensor, "*B T"], documents: Int[Tensor, "*B T"] | None = None
    ) -> Float[Tensor, "*B T D"]:
        """The vector of each token's part. Each document starts with part 0; parts beyond the table share its last."""
        ends = (ids == self.separator).long()
        part = ends.cumsum(-1) - ends
        if documents is not None:
            starts = torch.ones_like(ids, dtype=torch.bool)
            starts[..., 1:] = documents[..., 1:] != documents[..., :-1]
            part = part - (part * starts).cummax(-1).values
        return nn.functional.embedding(part.clamp(max=len(self.weight) - 1), self.weight)


class TokenEmbedding(nn.Module):
    """A learned vector for each id; `scale` multiplies it by √D (Vaswani et al. 2017, §3.4).

    With `table_dim`, the table is that narrow, and its vectors are projected to width D.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        *,
        scale: bool = False,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        segments: SegmentEmbedding | None = None,
        table_dim: int | None = None,
    ) -> None:
        super().__init__()
        width = dim if table_dim is None else table_dim
        self.weight = nn.Parameter(torch.randn(vocab_size, width) * width**-0.5)
        self.project = None if table_dim is None else nn.Linear(table_dim, dim, bias=False)
        if self.project is not None:
            nn.init.normal_(self.project.weight, std=dim**-0.5)  # so that a vector is as long as without a projection
        self.word_dropout = word_dropout
        """The share of tokens whose whole vector is dropped while training (Iyyer et al. 2015, §3.3)."""
        self.factor = math.sqrt(dim) if scale else 1.0
        self.segments = segments
        self.dropout = Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "*N"], documents: Int[Tensor, "*N"] | None = None, *, check: bool = True
    ) -> Float[Tensor, "*N D"]:
        """The vectors of the ids; `check` that they are in the table, unless that is known."""
        if check:
            check_ids(ids, len(self.weight), "ids")
        vectors = nn.functional.embedding(ids, self.weight)
        if self.project is not None:
            vectors = self.project(vectors)
        if self.factor != 1.0:
            vectors = vectors * self.factor
        if self.word_dropout:
            kept = nn.functional.dropout(vectors.new_ones(*ids.shape, 1), self.word_dropout, self.training)
            vectors = vectors * kept
        if self.segments is not None:
            vectors = vectors + self.segments(ids, documents)
        return self.dropout(vectors)


def embed(embedding: TokenEmbedding, batch: TokenBatch, *documents: Tensor | None) -> Float[Tensor, "B T D"]:
    """The vectors of a batch, whose ids are checked where that costs nothing."""
    if batch.host is None:
        return embedding(batch.ids, *documents)
    check_ids(batch.host.ids, len(embedding.weight), "ids")
    return embedding(batch.ids, *documents, check=False)


class Narrowing(nn.Module):
    """Pᵀh: the transpose of an embedding's projection, whose matrix is shared."""

    def __init__(self, projection: nn.Linear) -> None:
        super().__init__()
        self.weight = projection.weight

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N E"]:
        """States as wide as the table."""
        return nn.functional.linear(states, self.weight.t())


class OutputLayer(nn.Module):
    """Scores over the vocabulary; `tied` is an embedding whose matrix, and projection if it has one, is shared."""

    bias: Tensor

    def __init__(self, dim: int, vocab_size: int, tied: TokenEmbedding | None = None, *, bias: bool = True) -> None:
        super().__init__()
        project = None if tied is None else tied.project
        if tied is not None:
            given = (len(tied.weight), tied.weight.shape[1] if project is None else project.out_features)
            if given != (vocab_size, dim):
                raise ShapeError(f"tied embedding has shape {given}, but the output layer needs {(vocab_size, dim)}")
        self.narrowing = None if project is None else Narrowing(project)
        self.weight = tied.weight if tied is not None else nn.Parameter(torch.randn(vocab_size, dim) * dim**-0.5)
        if bias:
            self.bias = nn.Parameter(torch.zeros(vocab_size))
        else:
            self.register_buffer("bias", torch.zeros(vocab_size), persistent=False)

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits."""
        return nn.functional.linear(self.narrow(states), self.weight, self.bias)

    def narrow(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N E"]:
        """The states as wide as the matrix."""
        return states if self.narrowing is None else self.narrowing(states)


def check_ids(ids: Tensor, size: int, name: str) -> None:
    """Refuse ids outside a vocabulary of `size`, with a message that names them."""
    if not ids.numel():
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= size:
        raise ShapeError(f"{name} holds {low if low < 0 else high}, outside the vocabulary 0 … {size - 1}")
