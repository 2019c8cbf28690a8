"""Rows of tokens on which an exported model is compared with the one it was made of, and what that one computes.

The tokens are drawn from the whole vocabulary, in rows of different lengths: a difference anywhere shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqloom.hub.framing import find_framing
from seqloom.hub.imported import Imported
from seqloom.models.labelling import Classifier, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.types import PairBatch, TokenBatch

_LENGTHS, _TARGET_LENGTHS = (40, 1, 9, 3), (4, 30, 2, 1)
Rows = list[list[int]]
TOLERANCE = 1e-4
"""The largest difference that rounding explains, as a share of the largest number where that is above 1."""


@dataclass(frozen=True)
class Samples:
    """What is read and, for a translation model, what is written."""

    rows: Rows
    targets: Rows


def draw_samples(model: Imported, longest: int) -> Samples:
    """The same ones each time."""
    framing = find_framing(model.config, model.tokenizer)
    roles = model.tokenizer.roles
    special = {roles.pad, roles.bos, roles.eos, roles.mask, roles.cls, roles.sep, roles.unk}
    plain = [id for id in range(model.tokenizer.vocab_size) if id not in special]
    generator = torch.Generator().manual_seed(0)

    def draw(lengths: Sequence[int], room: int) -> list[tuple[int, ...]]:
        places = (torch.randint(len(plain), (min(length, room),), generator=generator) for length in lengths)
        return [tuple(plain[place] for place in row.tolist()) for row in places]

    room = max(1, longest - len(framing.before) - len(framing.after))
    rows = [list(framing.frame(ids)) for ids in draw(_LENGTHS, room)]
    targets = [[*framing.start, *ids] for ids in draw(_TARGET_LENGTHS, max(1, longest - len(framing.start)))]
    return Samples(rows, targets)


def pad_samples(rows: Rows, pad: int | None) -> TokenBatch:
    """Rows as a batch."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad or 0] * (width - len(row))] for row in rows])
    return TokenBatch(ids, torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None])


@torch.inference_mode()
def compute(model: Imported, samples: Samples) -> tuple[Tensor, Tensor]:
    """What the model makes of samples, and which of it counts: scores, or states where there is no head."""
    network, pad = model.network, model.tokenizer.roles.pad
    batch = pad_samples(samples.rows, pad)
    match network:
        case Seq2Seq():
            target = pad_samples(samples.targets, pad)
            return network.output(network(PairBatch(batch, target))), target.mask
        case LanguageModel():
            return network.output(network(batch)), batch.mask
        case MaskedLanguageModel() if network.transform is not None and network.output is not None:
            return network.output(network.transform(network.encode(batch).states)), batch.mask
        case Classifier():
            return network(batch), torch.ones(len(batch.ids), dtype=torch.bool)
        case Tagger():
            return network(batch), batch.mask
        case MaskedLanguageModel() | BidirectionalLanguageModel():
            return network.encode(batch).states, batch.mask
        case _:
            raise AssertionError(f"there is no model of type {type(network).__name__}")


def measure_difference(ours: Tensor, theirs: Tensor, real: Tensor) -> float:
    """The largest difference between two results, as a share of the largest number where that is above 1."""
    expected = ours[real]
    return float((expected - theirs[real]).abs().max() / expected.abs().max().clamp(min=1.0))
