"""Which tokens may stand where a text has a mask."""

from collections.abc import Sequence
from dataclasses import astuple

import torch

from weft.models.masked_lm import MaskedLanguageModel
from weft.predict.loaded import Loaded, batch_by_length
from weft.predict.results import Candidate, Filling, Mask, Span
from weft.predict.splitting import Piece, group_pieces, split_text


@torch.inference_mode()
def fill(loaded: Loaded, texts: Sequence[str], *, top: int = 5) -> list[Filling]:
    """The `top` candidates of each mask, which is written as the tokeniser writes it: [MASK]."""
    network, roles = loaded.network, loaded.tokenizer.roles
    if not isinstance(network, MaskedLanguageModel) or network.output is None or roles.mask is None:
        loaded.refuse("fill")
    special = sorted({id for id in astuple(roles) if id is not None})
    pieces = [piece for owner, text in enumerate(texts) for piece in _cut(loaded, owner, text)]
    spelled = [_spell(loaded, piece.text) for piece in pieces]
    rows = [loaded.frame("text", ids) for ids, _ in spelled]
    masks: list[list[Mask]] = [[] for _ in texts]
    for batch in batch_by_length(rows):
        tokens = loaded.pad([rows[index] for index in batch])
        hidden = (tokens.ids == roles.mask) & tokens.mask
        probabilities = network.output(network(tokens, hidden)).float().softmax(-1)[:, : loaded.tokenizer.vocab_size]
        probabilities[:, special] = -1.0  # a special token is no answer, whatever its probability
        best = probabilities.topk(min(top, probabilities.shape[1] - len(special)))
        found = iter(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        for index in batch:
            piece, (ids, offsets) = pieces[index], spelled[index]
            for start, end in (offset for id, offset in zip(ids, offsets, strict=True) if id == roles.mask):
                candidates = tuple(_name(loaded, *pair) for pair in zip(*next(found), strict=True))
                masks[piece.owner].append(Mask((piece.start + start, piece.start + end), candidates))
    counts = [max(1, len(own)) for own in group_pieces(pieces, len(texts))]
    return [_put(text, own, count) for text, own, count in zip(texts, masks, counts, strict=True)]


def _put(text: str, masks: list[Mask], pieces: int) -> Filling:
    """The user's own text, with the best candidate in the place of each mask."""
    masks = sorted(masks, key=lambda mask: mask.offset)
    filled = text
    for mask in reversed(masks):
        start, end = mask.offset
        filled = filled[:start] + mask.candidates[0].text.strip() + filled[end:]
    return Filling(filled, tuple(masks), pieces=pieces)


def _name(loaded: Loaded, id: int, probability: float) -> Candidate:
    return Candidate(loaded.tokenizer.token(id), loaded.tokenizer.decode([id]), probability)


def _cut(loaded: Loaded, owner: int, text: str) -> list[Piece]:
    ids, offsets = _spell(loaded, text)
    room = loaded.room("text")
    if len(ids) > room:
        return split_text(owner, text, offsets, room)
    return [Piece(owner, text, 0, "")] if text.strip() else []


def _spell(loaded: Loaded, text: str) -> tuple[list[int], list[Span]]:
    """Ids and offsets of a text with masks; nothing else in it is special."""
    tokenizer = loaded.tokenizer
    assert tokenizer.roles.mask is not None
    name = tokenizer.token(tokenizer.roles.mask)
    ids: list[int] = []
    offsets: list[Span] = []
    start = 0
    for part in text.split(name):
        if start:
            ids.append(tokenizer.roles.mask)
            offsets.append((start - len(name), start))
        # Where a word's first token holds the space before it, the mask stands for that space, too.
        last = start + len(part) == len(text)
        encoding = tokenizer.encode(part if last or not _holds_space(loaded) else part.removesuffix(" "))
        ids += encoding.ids
        offsets += [(start + first, start + end) for first, end in encoding.offsets]
        start += len(part) + len(name)
    return ids, offsets


def _holds_space(loaded: Loaded) -> bool:
    cutter = loaded.tokenizer.plain.pre_tokenizer
    return cutter is not None and any(len(word) > 1 for word, _ in cutter.pre_tokenize_str("a a"))
