"""A target text for each source text."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from seqloom.decode.options import Request, Search
from seqloom.models.seq2seq import Seq2Seq
from seqloom.predict.alignment import align_words
from seqloom.predict.loaded import Loaded, batch_by_length
from seqloom.predict.results import Translation
from seqloom.predict.search import spell_forbidden, spell_required
from seqloom.predict.splitting import Piece, group_pieces
from seqloom.seeds import derive_seed
from seqloom.types import Hypothesis

_BATCH_TOKENS = 4096


@torch.inference_mode()
def translate(
    loaded: Loaded, texts: Sequence[str], wanted: Search, *, align: bool, numbers: Sequence[int]
) -> list[Translation]:
    """Translate each text; of one in several pieces, a prefix and constraints concern the first.

    `numbers` are those of the texts: with the seed, they decide what is drawn.
    """
    network = loaded.compile()
    if not isinstance(network, Seq2Seq):
        loaded.refuse("translate")
    end = loaded.find_end("target")
    never = loaded.list_silent(network.output, end)
    loaded.engine.check(wanted)
    pieces = loaded.cut(texts, loaded.room("source"))
    rows = [loaded.frame("source", piece.ids) for piece in pieces]
    requests = _ask(loaded, wanted, pieces, rows, numbers)
    found: list[list[Translation]] = [[] for _ in pieces]
    for batch in batch_by_length(rows, max(1, _BATCH_TOKENS // wanted.width)):
        asked = [requests[index] for index in batch]
        answers = loaded.engine.search([rows[index] for index in batch], asked, wanted, end=end, never=never)
        for index, hypotheses in zip(batch, answers, strict=True):
            found[index] = [_write(loaded, hypothesis) for hypothesis in hypotheses]
    if align:
        _align(loaded, pieces, found)
    return [
        _join(texts[owner], [pieces[i] for i in own], [found[i] for i in own])
        for owner, own in enumerate(group_pieces(pieces, len(texts)))
    ]


def _ask(
    loaded: Loaded, wanted: Search, pieces: Sequence[Piece], rows: Sequence[Sequence[int]], numbers: Sequence[int]
) -> list[Request]:
    tokenizer = loaded.tokenizer
    start, *lead = loaded.frames["target"].before
    prefix, required = (*lead, *tokenizer.encode(wanted.prefix).ids), spell_required(wanted, tokenizer)
    forbidden = spell_forbidden(wanted, tokenizer)
    forced = len(prefix) + sum(map(len, required))
    requests: list[Request] = []
    for piece, row in zip(pieces, rows, strict=True):
        first = piece.start == 0 or not requests or pieces[len(requests) - 1].owner != piece.owner
        longest = wanted.max_length or 2 * len(row) + 10 + forced
        requests.append(
            Request(
                start=start,
                max_length=min(longest, loaded.positions("decoder") or longest),
                prefix=prefix if first else tuple(lead),
                seed=derive_seed(wanted.seed, numbers[piece.owner], piece.start) if wanted.sample else 0,
                required=required if first else (),
                forbidden=forbidden,
            )
        )
    return requests


def _write(loaded: Loaded, found: Hypothesis) -> Translation:
    tokens = tuple(loaded.tokenizer.token(id) for id in found.ids)
    text = loaded.tokenizer.decode(found.ids)
    return Translation(text, found.score, tokens, found.token_scores, finished=found.finished)


def _align(loaded: Loaded, pieces: Sequence[Piece], found: list[list[Translation]]) -> None:
    pairs = [(number, rank) for number, answers in enumerate(found) for rank in range(len(answers))]
    sources = [pieces[number].text for number, _ in pairs]
    targets = [found[number][rank].text for number, rank in pairs]
    for (number, rank), alignment in zip(pairs, align_words(loaded, sources, targets), strict=True):
        found[number][rank] = replace(found[number][rank], alignment=alignment)


def _join(text: str, pieces: list[Piece], found: list[list[Translation]]) -> Translation:
    """The answers to the pieces of a text as one, the best with the best, the second with the second."""
    if not pieces:
        return Translation("")
    ranks = [_chain(text, pieces, [answers[rank] for answers in found]) for rank in range(min(len(a) for a in found))]
    return replace(ranks[0], alternatives=tuple(ranks[1:]))


def _chain(text: str, pieces: list[Piece], parts: list[Translation]) -> Translation:
    if len(parts) == 1:
        return parts[0]
    written, pairs = "", []
    for piece, part in zip(pieces, parts, strict=True):
        read, begun = _count_words(text[: piece.start]), _count_words(written)
        pairs += [(read + source, begun + target) for source, target in part.alignment]
        written += part.text + piece.gap
    return Translation(
        written,
        sum(part.score for part in parts),
        tuple(token for part in parts for token in part.tokens),
        tuple(score for part in parts for score in part.token_scores),
        tuple(pairs),
        all(part.finished for part in parts),
        pieces=len(parts),
    )


def _count_words(before: str) -> int:
    """How many words end before what follows; one that does not end goes on in it."""
    return len(before.split()) - (before != "" and not before[-1].isspace())
