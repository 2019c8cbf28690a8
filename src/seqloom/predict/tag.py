"""Tagging: a tag for each word of a text, and the spans that the tags mark.

The tags of a text are the best sequence that their scheme allows, found over all words at once, also where the network
reads the text in pieces. The probability of a tag is the network's own for that word.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqloom.decode.viterbi import find_best_tags
from seqloom.errors import DataError
from seqloom.metrics.spans import find_spans, find_transitions, holds_spans
from seqloom.models.labelling import Tagger
from seqloom.predict.predictor import Predictor, cut_texts, require_numbers
from seqloom.predict.results import Span, TaggedSpan, Tagging

_WORD = re.compile(r"\S+")
Words = str | Sequence[str]
"""A text, whose words are separated by white space, or a list of words."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Words that the network reads at once."""

    owner: int
    ids: list[int]
    first: list[int]
    """The index of each word's first id."""
    words: list[str]
    offsets: list[Span]


@torch.inference_mode()
def tag(model: Predictor, texts: Sequence[Words], *, legal: bool = True) -> list[Tagging]:
    """A tag for each word of each text; without `legal`, each word's best tag, whatever the others are."""
    network = model.compile()
    if not isinstance(network, Tagger):
        model.refuse("tag")
    rows = _read(model, texts)
    before = len(model.frames["words"].before)
    scores: list[NDArray[np.float32]] = [np.empty(0, np.float32) for _ in rows]
    framed = [model.frame("words", row.ids) for row in rows]
    for indices, found in model.compute(network, framed, lambda batch: require_numbers(network(batch).float())):
        for index, row in zip(indices, found.numpy(), strict=True):
            scores[index] = row[[before + first for first in rows[index].first]]
    rules = find_transitions(model.labels, iob1=model.seen is not None and model.seen.iob1) if legal else None
    own: list[list[int]] = [[] for _ in texts]
    for index, row in enumerate(rows):
        own[row.owner].append(index)
    return [
        _write(model, text, [rows[index] for index in mine], [scores[index] for index in mine], rules)
        for text, mine in zip(texts, own, strict=True)
    ]


def _write(model: Predictor, text: Words, rows: list[_Row], scores: list[NDArray[np.float32]], rules: Any) -> Tagging:
    if not rows:
        return Tagging()
    whole = torch.from_numpy(np.concatenate(scores))
    numbers = find_best_tags(whole.numpy(), rules)
    tags = tuple(model.labels[number] for number in numbers)
    offsets = tuple(offset for row in rows for offset in row.offsets)
    given = text if isinstance(text, str) else " ".join(text)
    spans = sorted(find_spans(tags), key=lambda span: span[1]) if holds_spans(model.labels) else []
    ranges = [(kind, offsets[first][0], offsets[stop - 1][1]) for kind, first, stop in spans]
    return Tagging(
        tuple(word for row in rows for word in row.words),
        tags,
        tuple(whole.softmax(-1)[range(len(numbers)), numbers].tolist()),
        offsets,
        tuple(TaggedSpan(kind, given[start:end], start, end) for kind, start, end in ranges),
        pieces=len(rows),
    )


def _read(model: Predictor, texts: Sequence[Words]) -> list[_Row]:
    """The rows of each text: most have one, and a blank text has none."""
    room, rows = model.room("words"), []
    plain = [text if isinstance(text, str) else "" for text in texts]
    for piece in cut_texts(model.tokenizer, plain, room):
        found = list(_WORD.finditer(piece.text))
        words = [match[0] for match in found]
        offsets = [(piece.start + match.start(), piece.start + match.end()) for match in found]
        rows.append(_Row(piece.owner, *model.tokenizer.encode_words(words), words, offsets))
    for owner, text in enumerate(texts):
        if not isinstance(text, str):
            rows += _read_words(model, owner, text, room)
    return rows


def _read_words(model: Predictor, owner: int, text: Sequence[str], room: int) -> list[_Row]:
    """The same for a list of words. It is cut between words; of a word that is too long, the first tokens are read."""
    words, offsets = _check_words(text, f"text {owner + 1}"), list[Span]()
    for word in words:
        start = offsets[-1][1] + 1 if offsets else 0
        offsets.append((start, start + len(word)))
    rows, begin = [], 0
    while begin < len(words):
        ids, first = model.tokenizer.encode_words(words[begin:])
        ends = [*first[1:], len(ids)]
        count = max(1, sum(end <= room for end in ends))
        stop = begin + count
        rows.append(
            _Row(owner, ids[: min(ends[count - 1], room)], first[:count], words[begin:stop], offsets[begin:stop])
        )
        begin = stop
    return rows


def _check_words(words: Any, where: str) -> list[str]:
    if not isinstance(words, Sequence) or isinstance(words, bytes):
        raise DataError(f"{where}: expected a text or a list of words, not {type(words).__name__}")
    for word in words:
        if not isinstance(word, str):
            raise DataError(f"{where}: expected a list of words, but it holds {type(word).__name__}")
    return list(words)


def parse_words(line: str) -> list[str]:
    """The words of a line of JSON: a list, or an object with the key `words`; none for a blank line."""
    if not line.strip():
        return []
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    value = value.get("words") if isinstance(value, dict) else value
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise DataError('expected a JSON list of words, such as ["Ada", "lived"], or an object with the key "words"')
    return value
