"""Words as points: static vectors, what one can ask of them, and how good they are."""

from seqloom.models.word_vectors.vectors import EmbeddingStart, Neighbour, UnknownWordError, WordVectors

__all__ = ["EmbeddingStart", "Neighbour", "UnknownWordError", "WordVectors"]
