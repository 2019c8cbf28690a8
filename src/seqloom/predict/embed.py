"""Vectors of texts and tokens.

A layer is a number from 0, the input, to the last (−1 counts from the end), or one of

    all      every layer, the input first, from one pass over the text
    mix      the mean of all layers: ELMo's mixture (Peters et al. 2018, eq. 1) before a task has learned its weights
    concat   [v; h→; h←]: the vector of the token itself and the last states of both directions, which is what a task
             reads beside its own vectors if only the top layer is used (Peters et al. 2017; Peters et al. 2018, §3.3)
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.errors import RunError
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel
from seqloom.nn.attention import Pool
from seqloom.predict.compiled import compile_pool
from seqloom.predict.predictor import Predictor, group_pieces
from seqloom.predict.results import TokenVectors, Vector
from seqloom.tasks.model import TextVector
from seqloom.types import TokenBatch

Layer = int | Literal["all", "mix", "concat"]
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

    With all layers, a text has a vector from each. By default the model decides how to pool and whether to normalise:
    most often the mean, not normalised.
    """
    default = getattr(model.config.model, "embed", TextVector())
    pooling = pooling or ("cls" if default.pooling == "first" else default.pooling)
    normalise = default.normalise if normalise is None else normalise
    network = model.compile()
    pool = _choose_pool(network, pooling)
    if network is not model.peek() and model.precision != "float32":
        pool = compile_pool(pool)
    pieces, rows = model.read(texts, next(iter(model.frames)))
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)

    def compute(tokens: TokenBatch) -> Tensor:
        states = _encode(network, tokens, layer)
        given = states if pooling == "attention" else [one.float() for one in states]
        return torch.stack([pool(one, tokens.mask).float().cpu() for one in given], dim=1)  # (B, layers, D)

    for indices, pooled in model.compute(network, rows, compute):
        for index, vector in zip(indices, pooled, strict=True):
            vectors[index] = vector if layer == "all" else vector[0]
    shape = vectors[0].shape if vectors else measure_shape(model, layer)
    answers = []
    for own in group_pieces(pieces, len(texts)):
        if pooling == "max" and own:
            vector = torch.stack([vectors[index] for index in own]).amax(0)
        else:
            total = sum(len(rows[index]) for index in own)
            vector = sum((vectors[index] * (len(rows[index]) / total) for index in own), torch.zeros(shape))
        vector = nn.functional.normalize(vector, dim=-1) if normalise else vector
        answers.append(Vector(vector.numpy(), pieces=max(1, len(own))))
    return answers


@torch.inference_mode()
def embed_tokens(
    model: Predictor, texts: Sequence[str], *, layer: Layer = -1, normalise: bool = False
) -> list[TokenVectors]:
    """One vector for each token of a text, without the special tokens; with all layers, one from each layer."""
    network = model.compile()
    role = next(iter(model.frames))
    pieces, rows = model.read(texts, role)
    before = len(model.frames[role].before)
    encodings = [model.tokenizer.encode(piece.text) for piece in pieces]
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)

    def compute(tokens: TokenBatch) -> Tensor:
        return torch.stack([one.float().cpu() for one in _encode(network, tokens, layer)], dim=1)

    for indices, states in model.compute(network, rows, compute):
        for place, index in enumerate(indices):
            found = states[place, :, before : before + len(encodings[index].ids)]  # (layers, T, D)
            vectors[index] = found if layer == "all" else found[0]
    answers = []
    for own in group_pieces(pieces, len(texts)):
        parts = [vectors[index] for index in own] or [
            torch.zeros(measure_shape(model, layer)).unsqueeze(-2)[..., :0, :]
        ]
        stacked = torch.cat(parts, dim=-2)
        answers.append(
            TokenVectors(
                tuple(token for index in own for token in encodings[index].tokens),
                tuple((pieces[i].start + a, pieces[i].start + b) for i in own for a, b in encodings[i].offsets),
                (nn.functional.normalize(stacked, dim=-1) if normalise else stacked).numpy().astype(np.float32),
                pieces=max(1, len(own)),
            )
        )
    return answers


@torch.inference_mode()
def measure_shape(model: Predictor, layer: Layer = -1) -> tuple[int, ...]:
    """The number of coordinates of a vector; with all layers, how many these are, and that number."""
    states = _encode(model.compile(), model.pad([[0]]), layer)
    return (len(states), states[0].shape[-1]) if layer == "all" else (states[0].shape[-1],)


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


def _encode(network: nn.Module, tokens: TokenBatch, layer: Layer) -> list[Tensor]:
    """The states of a layer or, if all are asked for, of each."""
    if layer == -1:
        return [_get_layers(network, tokens, every=False)[-1]]
    if layer == "concat":
        return [torch.cat(_get_token_and_states(network, tokens), dim=-1)]
    layers = _get_layers(network, tokens, every=True)
    if layer in ("all", "mix"):
        widths = [states.shape[-1] for states in layers]
        if len({*widths}) > 1:
            raise RunError(
                f"layer: the layers have different widths ({', '.join(map(str, widths))}); choose one of them"
            )
        return [*layers] if layer == "all" else [torch.stack(layers).mean(0)]
    assert isinstance(layer, int)
    if not -len(layers) <= layer < len(layers):
        raise RunError(f"there is no layer {layer}: 0 is the input, {len(layers) - 1} the last")
    return [layers[layer]]


def _get_token_and_states(network: nn.Module, tokens: TokenBatch) -> tuple[Tensor, Tensor]:
    """The vectors that enter an encoder of two directions, and the states of its last layer."""
    match network:
        case BidirectionalLanguageModel():
            return network.embedding(tokens.ids), network.encode(tokens).states
        case nn.Module(encoder=RecurrentEncoder() as encoder) if len(encoder.layers[-1]) == 2:
            layers = _get_layers(network, tokens, every=True)
            return layers[0], layers[-1]
        case _:
            raise RunError(
                "layer: concat is [v; h→; h←], which bidirectional language models and recurrent encoders of both "
                "directions have; choose a number, all or mix"
            )


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
