"""An exported model must compute what the model itself computes.

Options that a format cannot express are refused by name, before anything is written. The exported model is then run on
random tokens from the whole vocabulary, in rows of different lengths, and compared with the original.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.config.stacks import TransformerDecoderConfig, TransformerEncoderConfig
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.errors import RunError
from seqloom.hub.bundle import Bundle, find_special_tokens
from seqloom.models.labelling import Classifier, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.tasks import Task
from seqloom.text import Tokenizer
from seqloom.text.roles import ROLES
from seqloom.types import PairBatch, TokenBatch

Stack = TransformerEncoderConfig | TransformerDecoderConfig
Rows = list[list[int]]
TOLERANCE = 1e-4
"""The largest difference that rounding explains, relative to the largest value where that is above 1."""
_USUAL = {
    "score": "scaled-dot",
    "chunked_heads": False,
    "feedforward": True,
    "residual": True,
    "gate": True,
    "dilation_base": 1,
}
"""Switches of Transformers and convolutions that no other format has, as models usually are."""
_LENGTHS, _TARGET_LENGTHS = (40, 1, 9, 3), (4, 30, 2, 1)
_MIN_POSITIONS = 1024


def refusal(key: str, value: Any, why: str) -> RunError:
    """An error that names the option."""
    return RunError(f"{key} = {json.dumps(value)}: cannot be exported: {why}")


def require(section: Any, where: str, who: str, **wanted: Any) -> None:
    """Refuse a section whose options have other values than these."""
    for key, value in wanted.items():
        given = getattr(section, key, value)
        if given != value:
            reason = "have no such option" if value is None else f"have {json.dumps(value)}"
            raise refusal(f"{where}.{key}", given, f"{who} {reason}")


def require_usual(config: Task, part: str, who: str) -> None:
    """Refuse a Transformer or convolutional stack that lacks a usual part, or has one that only Seqloom has."""
    stack, where = getattr(config.model, part, None), f"model.{part}"
    if stack is None or stack.family == "recurrent":
        return
    wanted = _USUAL | ({"norm": "layer"} if getattr(stack, "norm", "layer") == "none" else {})
    for key, value in wanted.items():
        given = getattr(stack, key, value)
        if given != value:
            way = f"train with {key} = {json.dumps(value)}, or use the run with seqloom"
            raise refusal(f"{where}.{key}", given, f"{who} have {json.dumps(value)}; {way}")


def require_transformer(config: Task, part: str, who: str, **wanted: Any) -> Stack:
    """The options of an encoder or a decoder, refused unless it is a Transformer with these values."""
    stack = getattr(config.model, part)
    require(stack, f"model.{part}", who, family="transformer", direction="both")
    assert isinstance(stack, Stack)
    require_usual(config, part, who)
    require(stack, f"model.{part}", who, normalise_qk=False, **wanted)
    if getattr(stack.positions, "combine", "sum") != "sum":
        raise refusal(f"model.{part}.positions.combine", "concat", f"{who} add positions")
    return stack


def resolve_stack(stack: Stack) -> dict[str, Any]:
    """The options of a stack; those that are not given have the values that follow from others."""
    derived = {
        "hidden_dim": 4 * stack.model_dim,
        "num_kv_heads": stack.num_heads,
        "head_dim": stack.model_dim // stack.num_heads,
        "norm_epsilon": {"layer": 1e-5, "rms": 1e-6, "none": None}[stack.norm],
    }
    return dict(stack) | {key: value for key, value in derived.items() if getattr(stack, key) is None}


def count_positions(model: Bundle, *stacks: Stack) -> int:
    """The rows of a position table: as many as the model's own table or, for computed positions, more than enough."""
    tables = [table for stack in stacks if (table := getattr(stack.positions, "table", None)) is not None]
    return min(tables) if tables else max(_MIN_POSITIONS, 2 * model.config.max_length + 16)


@torch.no_grad()
def tabulate_positions(stack: nn.Module, config: Stack, rows: int) -> Tensor:
    """The positions that a stack adds to its input, as a table."""
    assert isinstance(stack, TransformerEncoder | TransformerDecoder)
    if stack.positions is None:
        return torch.zeros(rows, config.model_dim)
    vectors = stack.positions.tabulate(rows, torch.device("cpu")).vectors
    assert vectors is not None
    return nn.functional.pad(vectors, (0, config.model_dim - vectors.shape[-1]))


@dataclass(frozen=True)
class Samples:
    """Rows of ids to read and, for a translation model, rows of target ids."""

    rows: Rows
    targets: Rows


def draw_samples(model: Bundle, longest: int) -> Samples:
    """Random rows of at most `longest` tokens, the same on every call."""
    tokens = find_special_tokens(model)
    generator = torch.Generator().manual_seed(0)

    def draw(tokenizer: Tokenizer, lengths: Sequence[int], room: int) -> list[tuple[int, ...]]:
        special = {getattr(tokenizer.roles, role) for role in ROLES}
        plain = [id for id in range(tokenizer.vocab_size) if id not in special]
        places = (torch.randint(len(plain), (min(length, room),), generator=generator) for length in lengths)
        return [tuple(plain[place] for place in row.tolist()) for row in places]

    room = max(1, longest - len(tokens.before) - len(tokens.after))
    rows = [list(tokens.frame(ids)) for ids in draw(model.tokenizer, _LENGTHS, room)]
    written = draw(model.tokenizer.target, _TARGET_LENGTHS, max(1, longest - len(tokens.start)))
    targets = [[*tokens.start, *ids] for ids in written]
    return Samples(rows, targets)


def pad_samples(rows: Rows, pad: int | None) -> TokenBatch:
    """Rows as a batch."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad or 0] * (width - len(row))] for row in rows])
    return TokenBatch(ids, torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None])


@torch.inference_mode()
def compute(model: Bundle, samples: Samples) -> tuple[Tensor, Tensor]:
    """The scores that the model computes, or its states if it has no head, and a mask without the padding."""
    network, pad = model.network, model.tokenizer.roles.pad
    batch = pad_samples(samples.rows, pad)
    match network:
        case Seq2Seq():
            target = pad_samples(samples.targets, model.tokenizer.target.roles.pad)
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
    """The largest difference between two results, relative to the largest value where that is above 1."""
    expected = ours[real]
    return float((expected - theirs[real]).abs().max() / expected.abs().max().clamp(min=1.0))
