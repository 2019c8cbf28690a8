"""Cutting texts that are too long where a reader would pause.

The best place is the end of a sentence, then of a clause, then a space, then the end of a token.
Each piece is as long as possible. The white space between pieces is kept, so that nothing is lost when they are joined.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from seqloom.text import Tokenizer

_PAUSES = (
    re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？｡]+[」』”]*"),  # sentences
    re.compile(r"[,;:–—]+[\"'”’»)\]]*(?=\s)|[、，；：]+"),  # clauses
    re.compile(r"(?=\s)"),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text."""

    owner: int
    """The index of the text."""
    text: str
    start: int
    """Where it begins in the text."""
    gap: str
    """The white space after it."""
    ids: Sequence[int] = ()
    """Its tokens, once they are known."""


def cut_texts(tokenizer: Tokenizer, texts: Sequence[str], room: int) -> list[Piece]:
    """The texts in pieces of at most `room` tokens; most texts are one piece, and a blank one has none."""
    pieces: list[Piece] = []
    for owner, (text, ids) in enumerate(zip(texts, tokenizer.encode_batch(texts), strict=True)):
        if text.strip():
            pieces += _fit(tokenizer, Piece(owner, text, 0, "", ids), room)
    return pieces


def _fit(tokenizer: Tokenizer, piece: Piece, room: int) -> list[Piece]:
    """Cut a piece until its parts fit: a cut may change the tokens, so that a part is too long again."""
    if len(piece.ids) <= room:
        return [piece]
    parts = split_text(piece.owner, piece.text, tokenizer.encode(piece.text).offsets, room)
    if parts[0].text == piece.text:  # one character with more tokens than there is room for
        return [piece]
    parts[-1] = replace(parts[-1], gap=piece.gap)
    encoded = zip(parts, tokenizer.encode_batch([part.text for part in parts]), strict=True)
    moved = (replace(part, start=piece.start + part.start, ids=ids) for part, ids in encoded)
    return [fitting for part in moved for fitting in _fit(tokenizer, part, room)]


def group_pieces(pieces: Sequence[Piece], count: int) -> list[list[int]]:
    """For each of `count` texts, the indices of its pieces."""
    groups: list[list[int]] = [[] for _ in range(count)]
    for index, piece in enumerate(pieces):
        groups[piece.owner].append(index)
    return groups


def split_text(owner: int, text: str, offsets: Sequence[tuple[int, int]], room: int) -> list[Piece]:
    """Cut a text, whose tokens have these offsets, into pieces of at most `room` tokens."""
    pieces, start, token = [], len(text) - len(text.lstrip()), 0
    end = len(text.rstrip())
    while start < end:
        while token < len(offsets) and offsets[token][1] <= start:
            token += 1
        fits = token + room >= len(offsets)  # a character may have several tokens, all with its offset
        reach = end if fits else min(offsets[token + room - 1][1], offsets[token + room][0])
        stop = end if fits or reach >= end else _find_pause(text, start, max(reach, start + 1))
        stop = start + len(text[start:stop].rstrip())
        after = stop + len(text[stop:end]) - len(text[stop:end].lstrip())
        pieces.append(Piece(owner, text[start:stop], start, text[stop:after]))
        start = after
    return pieces


def _find_pause(text: str, start: int, reach: int) -> int:
    """The end of the last pause of the best kind in text[start:reach]; the next character may be part of the match."""
    for pause in _PAUSES:
        # A pause in the first quarter would make the piece too short; a lesser pause may come later.
        ends = [match.end() for match in pause.finditer(text, start, reach + 1) if match.end() <= reach]
        if ends and ends[-1] > start + (reach - start) // 4:
            return ends[-1]
    return reach
