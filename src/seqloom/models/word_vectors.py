"""A vector for every word, questions about nearness, and how good the vectors are.

Nearness is the cosine of the angle between two vectors. An analogy "a is to b as c is to ?" is answered by the word
whose vector is nearest to b − a + c, all three at unit length (3CosAdd: Mikolov, Yih and Zweig 2013, "Linguistic
Regularities in Continuous Space Word Representations").

Two public tests say how good vectors are. Similarity: people rated how alike two words are; the score is Spearman's
rank correlation between their ratings and the cosines (WordSim-353: Finkelstein et al. 2002). Analogies: the share of
questions whose best answer is the expected one (Google's 19,544 questions: Mikolov et al. 2013, "Efficient Estimation
of Word Representations in Vector Space"). A word is looked up as it is written, then in lower case. Questions with a
word that has no vector are left out and counted.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.data.files import read_lines
from seqloom.errors import DataError, ShapeError
from seqloom.metrics.correlation import measure_spearman

_TINY = torch.finfo(torch.float32).tiny
_QUESTIONS_AT_A_TIME = 256
_MAX_LINE = 1 << 16


class UnknownWordError(DataError, KeyError):
    """A word that has no vector."""

    __str__ = Exception.__str__  # KeyError would show its text in quotes


class Neighbour(NamedTuple):
    """A word, and its cosine with the query."""

    word: str
    similarity: float


class EmbeddingStart(NamedTuple):
    """Embeddings to start a model from, and the share of its vocabulary that has a vector of its own."""

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
            raise DataError(f'the word "{twice}" is in the vocabulary twice; keep one of its vectors')

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
        """A word's vector at length 1; a zero vector stays zero."""
        row = self._row(word)
        return self.vectors[row] / self.lengths[row]

    def matrix_for(self, vocabulary: Sequence[str], generator: torch.Generator) -> EmbeddingStart:
        """Embeddings to start a model from: each token's vector or, if it has none, noise of the same scale."""
        rows = torch.tensor([self.index.get(token, -1) for token in vocabulary], dtype=torch.long)
        found = rows >= 0
        scale = self.vectors.square().mean().sqrt()
        matrix = torch.randn(len(rows), self.dim, generator=generator) * scale
        matrix[found] = self.vectors[rows[found]]
        return EmbeddingStart(matrix, found.float().mean().item() if len(rows) else 0.0)

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each vector, by which cosines divide, and so never quite zero."""
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


class Rating(NamedTuple):
    """How alike people find two words."""

    a: str
    b: str
    score: float


class Question(NamedTuple):
    """a is to b as c is to expected; questions of one kind share a section."""

    section: str
    a: str
    b: str
    c: str
    expected: str


@dataclass(frozen=True, slots=True)
class SimilarityResult:
    """Spearman's correlation over the pairs that could be asked."""

    spearman: float
    asked: int
    left_out: int


@dataclass(frozen=True, slots=True)
class AnalogyResult:
    """The share of right answers among the questions that could be asked."""

    accuracy: float
    asked: int
    left_out: int
    sections: Mapping[str, float]


def read_ratings(path: str | Path) -> list[Rating]:
    """Ratings from lines `word<TAB>word<TAB>score`; lines that start with # are comments."""
    ratings = []
    for number, line in _read_lines(path):
        if line.startswith("#"):
            continue
        match line.split("\t"):
            case [a, b, score] if _is_number(score):
                ratings.append(Rating(a, b, float(score)))
            case _:
                raise DataError(f"{path}:{number}: expected word<TAB>word<TAB>score, not {line[:60]!r}")
    return ratings


def read_questions(path: str | Path) -> list[Question]:
    """Questions from lines of four words; a line `: name` starts a section."""
    section, questions = "", []
    for number, line in _read_lines(path):
        match line.split():
            case [":", *name]:
                section = " ".join(name)
            case [a, b, c, expected]:
                questions.append(Question(section, a, b, c, expected))
            case _:
                raise DataError(f"{path}:{number}: expected four words or `: section`, not {line[:60]!r}")
    return questions


def evaluate_similarity(vectors: WordVectors, ratings: Sequence[Rating]) -> SimilarityResult:
    """Spearman's rank correlation between people's ratings and the vectors' cosines."""
    asked = [(a, b, score) for w, x, score in ratings if (a := _find(vectors, w)) and (b := _find(vectors, x))]
    if len(asked) < 2:
        raise DataError(f"only {len(asked)} of {len(ratings)} rated pairs have vectors; at least 2 are needed")
    cosines = [vectors.similarity(a, b) for a, b, _ in asked]
    spearman = measure_spearman([score for _, _, score in asked], cosines).value
    return SimilarityResult(spearman, len(asked), len(ratings) - len(asked))


def evaluate_analogies(vectors: WordVectors, questions: Sequence[Question]) -> AnalogyResult:
    """Accuracy of 3CosAdd over all words, those of the question left out."""
    forms = [(question.section, [_find(vectors, word) for word in question[1:]]) for question in questions]
    known = [(section, [vectors.index[form] for form in words if form]) for section, words in forms if all(words)]
    if not known:
        raise DataError(f"none of the {len(questions)} questions has vectors for all four of its words")
    rows = torch.tensor([numbers for _, numbers in known])  # (Q, 4)
    unit = vectors.vectors / vectors.lengths[:, None]
    right: list[bool] = []
    for asked in rows.split(_QUESTIONS_AT_A_TIME):
        a, b, c, expected = asked.T
        scores = (unit[b] - unit[a] + unit[c]) @ unit.T
        right += scores.scatter(1, asked[:, :3], -torch.inf).argmax(dim=1).eq(expected).tolist()
    per_section = Counter(section for section, _ in known)
    right_in = Counter(section for (section, _), hit in zip(known, right, strict=True) if hit)
    return AnalogyResult(
        sum(right) / len(right),
        len(right),
        len(questions) - len(right),
        {section: right_in[section] / n for section, n in per_section.items()},
    )


def _find(vectors: WordVectors, word: str) -> str | None:
    return next((form for form in (word, word.lower()) if form in vectors), None)


def _read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in read_lines(path, _MAX_LINE) if line.strip())


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
