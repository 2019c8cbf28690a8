"""A tag for each word; a word is what stands between white space."""

import re
from collections.abc import Sequence

import torch

from seqloom.models.labelling import Tagger
from seqloom.predict.loaded import Loaded, batch_by_length, require_numbers
from seqloom.predict.results import Tagging
from seqloom.predict.splitting import group_pieces

_WORD = re.compile(r"\S+")


@torch.inference_mode()
def tag(loaded: Loaded, texts: Sequence[str]) -> list[Tagging]:
    """The tags of each text's words."""
    network = loaded.compile()
    if not isinstance(network, Tagger):
        loaded.refuse("tag")
    pieces = loaded.cut(texts, loaded.room("words"))
    found = [list(_WORD.finditer(piece.text)) for piece in pieces]
    spelled = [loaded.tokenizer.encode_words([match[0] for match in words]) for words in found]
    rows = [loaded.frame("words", ids) for ids, _ in spelled]
    before = len(loaded.frames["words"].before)
    best: list[list[tuple[str, float]]] = [[] for _ in rows]
    for batch in batch_by_length(rows):
        scores = require_numbers(network(loaded.pad([rows[index] for index in batch])).float())
        highest = scores.softmax(-1).max(-1)
        for index, numbers, values in zip(batch, highest.indices.tolist(), highest.values.tolist(), strict=True):
            places = [before + first for first in spelled[index][1]]
            best[index] = [(loaded.labels[numbers[place]], values[place]) for place in places]
    answers = []
    for own in group_pieces(pieces, len(texts)):
        words = [(match, pieces[index].start) for index in own for match in found[index]]
        tags = [tagged for index in own for tagged in best[index]]
        answers.append(
            Tagging(
                tuple(match[0] for match, _ in words),
                tuple(name for name, _ in tags),
                tuple(probability for _, probability in tags),
                tuple((start + match.start(), start + match.end()) for match, start in words),
                pieces=max(1, len(own)),
            )
        )
    return answers
