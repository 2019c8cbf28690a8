"""A label, or a number, for each text or pair of texts."""

from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.models.labelling import Classifier
from seqloom.predict.loaded import Loaded, batch_by_length, require_numbers
from seqloom.predict.results import Classification, Quantity
from seqloom.predict.splitting import Piece, group_pieces
from seqloom.tasks import ClassificationTask

Answer = Classification | Quantity


@torch.inference_mode()
def classify(loaded: Loaded, texts: Sequence[str], seconds: Sequence[str] = ()) -> list[Answer]:
    """What the model says of each text; of one in several pieces, the mean over its tokens."""
    network, config = loaded.compile(), loaded.config
    if not isinstance(network, Classifier) or not isinstance(config, ClassificationTask):
        loaded.refuse("classify")
    pieces, rows = _build_rows(loaded, texts, seconds)
    scores = torch.empty(len(rows), network.head.out_features)
    for batch in batch_by_length(rows):
        scores[batch] = require_numbers(network(loaded.pad([rows[index] for index in batch])).float())
    quantity = config.data.labels == "numbers"
    values = scores if quantity else scores.softmax(1)
    answers = []
    for own in group_pieces(pieces, len(texts)):
        weights = torch.tensor([float(len(rows[index])) for index in own])
        mean = torch.einsum("p,pc->c", weights / weights.sum(), values[own]) if own else None
        answers.append(_answer(loaded.labels, mean, max(1, len(own)), quantity))
    return answers


def _answer(labels: tuple[str, ...], values: Tensor | None, pieces: int, quantity: bool) -> Answer:
    if quantity:
        return Quantity(None if values is None else float(values[0]), pieces=pieces)
    if values is None:
        return Classification("")
    return choose_label(labels, values.tolist(), pieces)


def choose_label(labels: Sequence[str], probabilities: Sequence[float], pieces: int = 1) -> Classification:
    """The first of the most probable labels."""
    by_name = dict(zip(labels, probabilities, strict=True))
    best = max(by_name, key=lambda label: by_name[label])
    return Classification(best, by_name[best], by_name, pieces=pieces)


def _build_rows(loaded: Loaded, texts: Sequence[str], seconds: Sequence[str]) -> tuple[list[Piece], list[list[int]]]:
    if "second" not in loaded.frames:
        if seconds:
            raise DataError("this model was trained on single texts; give it one text at a time")
        pieces = loaded.cut(texts, loaded.room("text"))
        return pieces, [loaded.frame("text", piece.ids) for piece in pieces]
    pieces, rows = [], []
    for owner, (text, second) in enumerate(zip_longest(texts, seconds)):
        if second is None or text is None:
            raise DataError("this model was trained on pairs of texts; give it two texts, separated by a tab in a file")
        if text.strip() or second.strip():
            pair = zip(("text", "second"), loaded.tokenizer.encode_batch([text, second]), strict=True)
            rows.append([id for role, ids in pair for id in loaded.frame(role, ids)])
            pieces.append(Piece(owner, text, 0, ""))
    return pieces, rows
