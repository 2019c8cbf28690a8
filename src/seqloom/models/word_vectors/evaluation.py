"""How good word vectors are, by two public tests.

Similarity: people said how alike two words are; the score is Spearman's rank correlation between what they said and
the cosines (WordSim-353: Finkelstein et al. 2002). Analogies: the share of questions "a is to b as c is to ?" whose
best answer is the expected one (Google's 19,544 questions: Mikolov et al. 2013, "Efficient Estimation of Word
Representations in Vector Space"). A word is looked up as it is written, then in lower case; questions with a word that
has no vector are left out and counted.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from seqloom.data.files import read_lines
from seqloom.errors import DataError
from seqloom.metrics.correlation import measure_spearman
from seqloom.models.word_vectors.vectors import WordVectors

_QUESTIONS_AT_A_TIME = 256
_LONGEST_LINE = 1 << 16


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
    known = [(q.section, [vectors.index[w] for w in found]) for q in questions if (found := _find_all(vectors, q))]
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


def _find_all(vectors: WordVectors, question: Question) -> list[str] | None:
    found = [form for word in question[1:] if (form := _find(vectors, word))]
    return found if len(found) == 4 else None


def _read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in read_lines(path, _LONGEST_LINE) if line.strip())


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
