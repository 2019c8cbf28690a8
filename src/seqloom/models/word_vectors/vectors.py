"""A vector for every word, and questions about nearness.

Nearness is the cosine of the angle between two vectors. An analogy "a is to b as c is to ?" is answered by the word
whose vector is nearest to b − a + c, all three at unit length (3CosAdd: Mikolov, Yih and Zweig 2013, "Linguistic
Regularities in Continuous Space Word Representations").
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.errors import DataError, ShapeError


class UnknownWordError(DataError, KeyError):
    """A word that has no vector."""

    __str__ = Exception.__str__  # KeyError would show its text in quotes


class Neighbour(NamedTuple):
    """A word, and the cosine between it and what was asked for."""

    word: str
    similarity: float


class EmbeddingStart(NamedTuple):
    """The first embeddings of a model, and the share of its vocabulary that has a vector of its own in them."""

    matrix: Tensor
    coverage: float


class WordVectors:
    """Words and their vectors: row i of `vectors` belongs to `words[i]`."""

    def __init__(self, words: Sequence[str], vectors: Tensor) -> None:
        if vectors.dim() != 2 or len(vectors) != len(words):
            raise ShapeError(f"vectors: {tuple(vectors.shape)}, expected ({len(words)}, d): a row for each word")
        self.words = tuple(words)
        self.vectors = vectors
        self.index = {word: row for row, word in enumerate(self.words)}
        if len(self.index) < len(self.words):
            twice = next(word for row, word in enumerate(self.words) if self.index[word] != row)
            raise DataError(f'the word "{twice}" stands in the vocabulary twice; keep one of its vectors')

    @property
    def dim(self) -> int:
        """Numbers in each vector."""
        return self.vectors.size(1)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> Tensor:
        return self.vectors[self._row(word)]

    def similarity(self, a: str, b: str) -> float:
        """The cosine between two words."""
        return float(self.unit(a) @ self.unit(b))

    def nearest(self, query: str | Tensor, k: int = 10) -> list[Neighbour]:
        """The k words nearest to a word (itself left out) or to any vector, nearest first."""
        if isinstance(query, str):
            return self._rank(self.unit(query), k, (query,))
        if query.shape != (self.dim,):
            raise ShapeError(f"query: {tuple(query.shape)}, expected ({self.dim},) as the vectors have")
        return self._rank(query / query.norm().clamp(min=_TINY), k, ())

    def analogy(self, a: str, b: str, c: str, k: int = 10) -> list[Neighbour]:
        """What is to c as b is to a: the k best answers, the three words of the question left out."""
        goal = self.unit(b) - self.unit(a) + self.unit(c)
        return self._rank(goal / goal.norm().clamp(min=_TINY), k, (a, b, c))

    def unit(self, word: str) -> Tensor:
        """A word's vector at length 1; the zero vector stays as it is."""
        row = self._row(word)
        return self.vectors[row] / self.lengths[row]

    def matrix_for(self, vocabulary: Sequence[str], generator: torch.Generator) -> EmbeddingStart:
        """Embeddings to start a model from: a token's own vector or, where it has none, noise of the same scale."""
        rows = torch.tensor([self.index.get(token, -1) for token in vocabulary], dtype=torch.long)
        found = rows >= 0
        scale = self.vectors.square().mean().sqrt()
        matrix = torch.randn(len(rows), self.dim, generator=generator) * scale
        matrix[found] = self.vectors[rows[found]]
        return EmbeddingStart(matrix, found.float().mean().item() if len(rows) else 0.0)

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each vector, never quite zero: what cosines divide by."""
        lengths: Tensor = torch.linalg.vector_norm(self.vectors, dim=1)
        return lengths.clamp(min=_TINY)

    def _rank(self, unit: Tensor, k: int, left_out: Sequence[str]) -> list[Neighbour]:
        cosines = self.vectors @ unit / self.lengths
        cosines[[self.index[word] for word in left_out]] = -torch.inf
        best = cosines.topk(min(k, len(self) - len(set(left_out))))
        return [Neighbour(self.words[row], cosine) for cosine, row in zip(*(t.tolist() for t in best), strict=True)]

    def _row(self, word: str) -> int:
        if word in self.index:
            return self.index[word]
        known = next((form for form in (word.lower(), word.title(), word.upper()) if form in self.index), None)
        hint = f'"{known}" is' if known else "check its spelling and upper or lower case"
        raise UnknownWordError(f'"{word}" is not among the {len(self)} words with a vector; {hint}')


_TINY = torch.finfo(torch.float32).tiny
