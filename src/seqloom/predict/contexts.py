"""A word in many sentences: its vectors after each layer, in a plane, beside its static vector.

A static vector is the same wherever the word stands; a contextual one is computed from the sentence (Peters et al.
2018; Devlin et al. 2019). Of the vectors v_1 … v_n of n occurrences after a layer:

    self-similarity   the mean of cos(v_i, v_j) over i ≠ j                                  Ethayarajh 2019, §3.3
    to other words    the mean of cos(v_i, w) over the other words w of the sentences: how alike all vectors are

A word of several tokens has the mean of their vectors. The plane (plane.py) is that of vectors scaled to length one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from seqloom.errors import DataError
from seqloom.models.language_models import LanguageModel
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.predict.embed import embed_tokens
from seqloom.predict.plane import Rows, find_plane, normalise
from seqloom.predict.predictor import Predictor
from seqloom.predict.results import Span
from seqloom.predict.search import spell_token

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_NEIGHBOURS = 6


@dataclass(frozen=True)
class Occurrence:
    """Where a word stands."""

    text: int
    """The index of the sentence."""
    start: int
    """Its characters in the sentence."""
    end: int


@dataclass(frozen=True)
class Neighbour:
    """A word near an occurrence, by the cosine of their vectors."""

    word: str
    cosine: float
    text: int | None = None
    """The sentence that it stands in; None for a token of the vocabulary, which stands in none."""


@dataclass(frozen=True)
class WordLayer:
    """The occurrences after a layer."""

    name: str
    points: list[list[float]]
    """The occurrences in the plane of their first two principal components."""
    explained: tuple[float, float]
    """The share of the variance that lies in each direction of the plane."""
    cosines: list[list[float]]
    """Of each occurrence with each."""
    self_similarity: float | None
    """None where the word occurs once."""
    to_others: float | None
    """None where the sentences have no other word."""
    neighbours: list[list[Neighbour]]
    """For each occurrence, the other words of all sentences that are nearest to it; for a static vector, the tokens of
    the vocabulary."""


@dataclass(frozen=True)
class WordInContext:
    """A word in some sentences: its static vectors, if the model has such, then its input and every layer."""

    word: str
    texts: list[str]
    occurrences: list[Occurrence]
    layers: list[WordLayer]
    notes: list[str]


@dataclass(frozen=True)
class _Layer:
    """The vectors of all words of the sentences."""

    name: str
    vectors: Rows


def find_contexts(model: Predictor, word: str, texts: Sequence[str]) -> WordInContext:
    """The vectors of a word in sentences that contain it."""
    word = word.strip()
    if not word:
        raise DataError("word: give a word that the sentences contain")
    occurrences, notes = find_occurrences(word, texts)
    if not occurrences:
        raise DataError(f"{word!r} stands in none of the {len(texts)} sentences; add one that contains it")
    places = [*occurrences, *_find_others(texts, occurrences)]
    layers: list[WordLayer] = []
    fit: Rows | None = None
    for layer in _read_layers(model, texts, places):
        points, explained = find_plane(normalise(layer.vectors[: len(occurrences)]), fit)
        fit = points if any(explained) else fit
        layers.append(_compare(layer, len(occurrences), points, explained, texts, places))
    if isinstance(model.peek(), LanguageModel):
        notes.append("This model reads from left to right: a vector depends only on what stands before the word.")
    table = _find_table(model.peek())
    if table is None:
        notes.append("This model has no table of static vectors; the first layer is its input.")
    else:
        layers.insert(0, _compare_static(model, table, texts, places, len(occurrences)))
    return WordInContext(word, list(texts), occurrences, layers, notes)


def find_occurrences(word: str, texts: Sequence[str]) -> tuple[list[Occurrence], list[str]]:
    """Where the word stands as a whole, in capitals or not; else wherever its letters stand, and a note on that."""
    for pattern, note in ((rf"(?<!\w){re.escape(word)}(?!\w)", None), (re.escape(word), "as part of longer words")):
        found = [
            Occurrence(index, *match.span())
            for index, text in enumerate(texts)
            for match in re.finditer(pattern, text, re.IGNORECASE)
        ]
        if found:
            return found, [] if note is None else [f"“{word}” stands in these sentences only {note}."]
    return [], []


def _find_others(texts: Sequence[str], own: Sequence[Occurrence]) -> list[Occurrence]:
    """All other words of the sentences."""
    words = [Occurrence(index, *match.span()) for index, text in enumerate(texts) for match in _WORD.finditer(text)]
    taken = [(one.text, one.start, one.end) for one in own]
    return [one for one in words if not any(one.text == t and one.start < b and a < one.end for t, a, b in taken)]


def _read_layers(model: Predictor, texts: Sequence[str], places: Sequence[Occurrence]) -> Iterator[_Layer]:
    """The vectors of the words at these places: of the input, and after each layer."""
    read = embed_tokens(model, texts, layer="all")
    owned = [_cover(read[place.text].offsets, place) for place in places]
    for number in range(len(read[0].vectors)):
        rows = [read[place.text].vectors[number][own].mean(0) for place, own in zip(places, owned, strict=True)]
        yield _Layer("input" if number == 0 else f"after layer {number - 1}", np.stack(rows).astype(np.float64))


def _cover(offsets: Sequence[Span], place: Occurrence) -> list[int]:
    """The tokens of a word; all of a text, if none of them stands at it (a character that the tokeniser drops)."""
    found = [index for index, (start, end) in enumerate(offsets) if start < place.end and place.start < end]
    return found or list(range(len(offsets)))


def _compare(
    layer: _Layer,
    count: int,
    points: Rows,
    explained: tuple[float, float],
    texts: Sequence[str],
    places: Sequence[Occurrence],
) -> WordLayer:
    """A layer's occurrences, which are its first `count` vectors, beside each other and beside the other words."""
    unit = normalise(layer.vectors)
    cosines = unit[:count] @ unit.T
    own = cosines[:, :count]
    alike = (own.sum() - np.trace(own)) / (count * (count - 1)) if count > 1 else None
    others = cosines[:, count:]
    neighbours = []
    for row in others:
        near = [(places[count + at], float(row[at])) for at in np.argsort(-row, kind="stable")[:_NEIGHBOURS]]
        neighbours.append([Neighbour(texts[one.text][one.start : one.end], value, one.text) for one, value in near])
    return WordLayer(
        layer.name,
        points.tolist(),
        explained,
        own.tolist(),
        None if alike is None else float(alike),
        float(others.mean()) if others.size else None,
        neighbours,
    )


def _find_table(network: nn.Module) -> Rows | None:
    """The static vector of every token, as the network reads it."""
    embedding = getattr(network, "embedding", None) or getattr(network, "source_embedding", None)
    if type(embedding) is not TokenEmbedding:
        return None
    rows = embedding.weight if embedding.project is None else embedding.project(embedding.weight)
    return rows.detach().cpu().double().numpy()


def _compare_static(
    model: Predictor, table: Rows, texts: Sequence[str], places: Sequence[Occurrence], count: int
) -> WordLayer:
    """The static vectors, and their neighbours in the vocabulary."""
    encodings = [model.tokenizer.encode(text) for text in texts]
    spelled = [[encodings[p.text].ids[at] for at in _cover(encodings[p.text].offsets, p)] for p in places]
    layer = _Layer("static", np.stack([table[ids].mean(0) for ids in spelled]))
    points, explained = find_plane(normalise(layer.vectors[:count]))
    vocabulary = normalise(table[: model.tokenizer.vocab_size])
    nearest: dict[tuple[int, ...], list[Neighbour]] = {}
    for row, ids in enumerate(spelled[:count]):
        if tuple(ids) not in nearest:
            cosines = vocabulary @ normalise(layer.vectors[row : row + 1])[0]
            ranked = [at for at in np.argsort(-cosines, kind="stable")[: _NEIGHBOURS + len(ids)] if at not in ids]
            nearest[tuple(ids)] = [
                Neighbour(spell_token(model.tokenizer, int(at)), float(cosines[at])) for at in ranked
            ]
    compared = _compare(layer, count, points, explained, texts, places)
    return replace(compared, neighbours=[nearest[tuple(ids)][:_NEIGHBOURS] for ids in spelled[:count]])
