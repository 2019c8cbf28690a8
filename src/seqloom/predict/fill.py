"""Filling the masks of a text."""

from collections.abc import Sequence
from dataclasses import astuple

import torch

from seqloom.devices import send
from seqloom.models.language_models import MaskedLanguageModel
from seqloom.predict.predictor import Piece, Predictor, group_pieces, require_numbers, split_text
from seqloom.predict.results import Candidate, Filling, Mask, Span
from seqloom.text import Tokenizer


@torch.inference_mode()
def fill(model: Predictor, texts: Sequence[str], *, top: int = 5) -> list[Filling]:
    """The `top` candidates of each mask, which is written as in the tokeniser: [MASK]."""
    network, roles = model.compile(), model.tokenizer.roles
    if not isinstance(network, MaskedLanguageModel) or network.output is None or roles.mask is None:
        model.refuse("fill")
    special = sorted({id for id in astuple(roles) if id is not None})
    speller, room = Speller(model.tokenizer, roles.mask), model.room("text")
    pieces = [piece for owner, text in enumerate(texts) for piece in speller.cut(owner, text, room)]
    spelled = [speller.spell(piece.text) for piece in pieces]
    rows = [model.frame("text", ids) for ids, _ in spelled]
    places = [[place for place, id in enumerate(ids) if id == roles.mask] for ids, _ in spelled]
    before = len(model.frames["text"].before)  # a frame may have a mask, too, which asks for nothing
    masks: list[list[Mask]] = [[] for _ in texts]
    for indices, tokens in model.batch(rows):
        hidden = torch.zeros(tokens.mask.shape, dtype=torch.bool)
        for row, index in enumerate(indices):
            hidden[row, [before + place for place in places[index]]] = True
        scores = require_numbers(network.output(network(tokens, send(hidden, tokens.ids.device))).float())
        probabilities = scores.softmax(-1)[:, : model.tokenizer.vocab_size]
        probabilities[:, special] = -1.0  # a special token is never an answer
        best = probabilities.topk(min(top, probabilities.shape[1] - len(special)))
        found = iter(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        for index in indices:
            piece, (_, offsets) = pieces[index], spelled[index]
            for start, end in (offsets[place] for place in places[index]):
                candidates = tuple(_name(model, *pair) for pair in zip(*next(found), strict=True))
                masks[piece.owner].append(Mask((piece.start + start, piece.start + end), candidates))
    counts = [max(1, len(own)) for own in group_pieces(pieces, len(texts))]
    return [_fill_best(text, own, count) for text, own, count in zip(texts, masks, counts, strict=True)]


def _fill_best(text: str, masks: list[Mask], pieces: int) -> Filling:
    """The given text, with the best candidate in place of each mask."""
    masks = sorted(masks, key=lambda mask: mask.offset)
    filled = text
    for mask in reversed(masks):
        (start, end), best = mask.offset, mask.candidates[0].text
        filled = filled[:start] + (best.strip() or best) + filled[end:]
    return Filling(filled, tuple(masks), pieces=pieces)


def _name(model: Predictor, id: int, probability: float) -> Candidate:
    return Candidate(model.tokenizer.token(id), model.tokenizer.decode([id]), probability)


class Speller:
    """Encodes texts with masks; all other special tokens are ordinary text."""

    def __init__(self, tokenizer: Tokenizer, mask: int) -> None:
        self.tokenizer, self.mask = tokenizer, mask
        self.name = tokenizer.token(mask)
        names = (tokenizer.token(id) for id in range(tokenizer.vocab_size))
        # If the first token of a word includes the space before it, so does a mask.
        self.holds_space = any(len(name) > 1 and name[0] in "Ġ▁" for name in names)
        self.adds_space = tokenizer.encode("a").tokens[:1] == tokenizer.encode(" a").tokens[-1:] == ["▁a"]

    def spell(self, text: str) -> tuple[list[int], list[Span]]:
        """The ids of a text, and where each stands in it."""
        ids: list[int] = []
        offsets: list[Span] = []
        start = 0
        for part in text.split(self.name):
            if start:
                ids.append(self.mask)
                offsets.append((start - len(self.name), start))
            last = start + len(part) == len(text)
            kept = part.removesuffix(" ") if self.holds_space and not last else part
            skipped = int(self.adds_space and start > 0 and kept.startswith(" "))
            encoding = self.tokenizer.encode(kept[skipped:])
            ids += encoding.ids
            offsets += [(start + skipped + first, start + skipped + end) for first, end in encoding.offsets]
            start += len(part) + len(self.name)
        return ids, offsets

    def cut(self, owner: int, text: str, room: int) -> list[Piece]:
        """The text in pieces of at most `room` tokens."""
        ids, offsets = self.spell(text)
        if len(ids) > room:
            return split_text(owner, text, offsets, room)
        return [Piece(owner, text, 0, "")] if text.strip() else []
