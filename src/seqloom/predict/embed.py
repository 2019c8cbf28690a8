"""Vectors of texts and tokens.

A layer is a number from 0, the input, to the last (−1 counts from the end), or `mix`: the mean of all layers, which is
ELMo's mixture (Peters et al. 2018, eq. 1) before a task has learned its weights.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.errors import RunError
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel
from seqloom.nn.attention import Pool
from seqloom.predict.predictor import Predictor, group_pieces
from seqloom.predict.results import TokenVectors, Vector
from seqloom.tasks.model import TextVector
from seqloom.types import TokenBatch

Layer = int | Literal["mix"]
Pooling = Literal["mean", "cls", "max", "attention"]


@torch.inference_mode()
def embed_texts(
    model: Predictor,
    texts: Sequence[str],
    *,
    pooling: Pooling | None = None,
    layer: Layer = -1,
    normalise: bool | None = None,
) -> list[Vector]:
    """One vector per text, special tokens included; for a text in several pieces, the mean over all tokens.

    By default the model decides how to pool and whether to normalise: most often the mean, not normalised.
    """
    default = getattr(model.config.model, "embed", TextVector())
    pooling = pooling or ("cls" if default.pooling == "first" else default.pooling)
    normalise = default.normalise if normalise is None else normalise
    network = model.compile()
    pool = _choose_pool(network, pooling)
    pieces, rows = model.read(texts, next(iter(model.frames)))
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)
    for indices, tokens in model.batch(rows):
        states = _encode(network, tokens, layer)
        pooled = pool(states if pooling == "attention" else states.float(), tokens.mask).float().cpu()
        for index, vector in zip(indices, pooled, strict=True):
            vectors[index] = vector
    width = len(vectors[0]) if vectors else measure_width(model, layer)
    answers = []
    for own in group_pieces(pieces, len(texts)):
        if pooling == "max" and own:
            vector = torch.stack([vectors[index] for index in own]).amax(0)
        else:
            total = sum(len(rows[index]) for index in own)
            vector = sum((vectors[index] * (len(rows[index]) / total) for index in own), torch.zeros(width))
        vector = nn.functional.normalize(vector, dim=0) if normalise else vector
        answers.append(Vector(vector.numpy(), pieces=max(1, len(own))))
    return answers


@torch.inference_mode()
def embed_tokens(
    model: Predictor, texts: Sequence[str], *, layer: Layer = -1, normalise: bool = False
) -> list[TokenVectors]:
    """One vector for each token of a text, without the special tokens."""
    network = model.compile()
    role = next(iter(model.frames))
    pieces, rows = model.read(texts, role)
    before = len(model.frames[role].before)
    encodings = [model.tokenizer.encode(piece.text) for piece in pieces]
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)
    for indices, tokens in model.batch(rows):
        states = _encode(network, tokens, layer).float().cpu()
        for place, index in enumerate(indices):
            vectors[index] = states[place, before : before + len(encodings[index].ids)]
    answers = []
    for own in group_pieces(pieces, len(texts)):
        stacked = torch.cat([vectors[index] for index in own]) if own else torch.zeros(0, measure_width(model, layer))
        answers.append(
            TokenVectors(
                tuple(token for index in own for token in encodings[index].tokens),
                tuple((pieces[i].start + a, pieces[i].start + b) for i in own for a, b in encodings[i].offsets),
                (nn.functional.normalize(stacked, dim=1) if normalise else stacked).numpy().astype(np.float32),
                pieces=max(1, len(own)),
            )
        )
    return answers


@torch.inference_mode()
def measure_width(model: Predictor, layer: Layer = -1) -> int:
    """The number of coordinates of a vector."""
    return _encode(model.compile(), model.pad([[0]]), layer).shape[-1]


def _choose_pool(network: nn.Module, pooling: Pooling) -> Any:
    if pooling != "attention":
        return Pool("first" if pooling == "cls" else pooling, 0)
    own = getattr(network, "pool", None)
    if own is None or own.kind != "attention":
        raise RunError(
            'this model has not learned attention pooling (a classifier with model.pooling = "attention" has); '
            "choose mean, cls or max"
        )
    return own


def _encode(network: nn.Module, tokens: TokenBatch, layer: Layer) -> Tensor:
    if layer == -1:
        return _get_layers(network, tokens, every=False)[-1]
    layers = _get_layers(network, tokens, every=True)
    if layer == "mix":
        return torch.stack(layers).mean(0)
    if not -len(layers) <= layer < len(layers):
        raise RunError(f"there is no layer {layer}: 0 is the input, {len(layers) - 1} the last")
    return layers[layer]


def _get_layers(network: nn.Module, tokens: TokenBatch, *, every: bool) -> tuple[Tensor, ...]:
    """The states of every layer, the input first, or of the last layer alone."""
    match network:
        case LanguageModel():
            inputs: list[Tensor] = []
            states = network(tokens, layers=inputs if every else None)
            return (*inputs, states)
        case BidirectionalLanguageModel():
            return network.encode(tokens).layers
        case _:
            encoded = network.encode(tokens, all_layers=every)  # type: ignore[operator]
            return encoded.layers if every else (encoded.states,)
