"""Every encoder and decoder that the contracts are held against, as a user would write it."""

import itertools
import math
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from seqloom.config.stacks import DecoderConfig, EncoderConfig
from seqloom.decoders.base import Decoder
from seqloom.encoders.base import Encoder
from seqloom.models.stacks import build_decoder, build_encoder
from seqloom.types import Encoded

M = TypeVar("M", bound=nn.Module)
_ENCODER, _DECODER = TypeAdapter[EncoderConfig](EncoderConfig), TypeAdapter[DecoderConfig](DecoderConfig)
DIM, MEMORY_DIM, LAYERS = 8, 6, 2
POSITIONS: dict[str, Any] = {
    "index": "index",
    "index-concat": {"kind": "index", "combine": "concat"},
    "one-hot": {"kind": "one-hot", "table": 8},
    "one-hot-concat": {"kind": "one-hot", "table": 32, "combine": "concat"},
    "sinusoidal": "sinusoidal",
    "sinusoidal-concat": {"kind": "sinusoidal", "base": 100.0, "combine": "concat"},
    "sinusoidal-halves": {"kind": "sinusoidal", "order": "halves"},
    "learned": {"kind": "learned", "table": 32},
    "sinusoidal-from-1": {"kind": "sinusoidal", "first_position": 1},
    "learned-from-2": {"kind": "learned", "table": 32, "first_position": 2},
    "learned-concat": {"kind": "learned", "table": 32, "combine": "concat"},
    "rotary": "rotary",
    "rotary-stretched": {"kind": "rotary", "stretched": {"factor": 4.0, "length": 20}},
    "alibi": "alibi",
    "relative": {"kind": "relative", "buckets": 8, "distance": 6},
}
ENCODER_POSITIONS = POSITIONS | {
    "normalised": "normalised",
    "normalised-concat": {"kind": "normalised", "combine": "concat"},
}
_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "set": {"positions": "none"},
    "grouped": {"num_heads": 4, "num_kv_heads": 2},
    "multi-query": {"num_heads": 4, "num_kv_heads": 1, "positions": "rotary"},
    "post-norm": {"norm_position": "post"},
    "rms": {"norm": "rms", "normalise_qk": True, "activation": "squared-relu"},
    "rms-post-norm": {"norm": "rms", "norm_position": "post", "activation": "gelu"},
    "gelu-gated": {"activation": "gelu-gated", "hidden_dim": 12},
    "silu-gated": {"activation": "silu-gated"},
    "relu-gated": {"activation": "relu-gated", "bias": False, "norm_epsilon": 1e-3},
    "gelu-tanh-gated": {"activation": "gelu-tanh-gated", "head_dim": 6, "num_kv_heads": 1},
    "silu": {"activation": "silu", "head_dim": 2, "bias": False},
    "gelu-tanh": {"activation": "gelu-tanh", "input_norm": True, "norm_position": "post"},
    "window": {"window": 3},
    "window-1": {"window": 1, "positions": "learned"},
    "window-rotary": {"window": 2, "positions": "rotary"},
    "window-relative": {"window": 3, "positions": {"kind": "relative", "buckets": 8, "distance": 6}},
    "window-alibi": {"window": 4, "positions": "alibi", "num_kv_heads": 1},
}
SWITCHES: dict[str, dict[str, Any]] = {
    "dot": {"score": "dot"},
    "bilinear": {"score": "bilinear", "num_heads": 4, "num_kv_heads": 2},
    "additive": {"score": "additive", "positions": "sinusoidal"},
    "additive-window": {"score": "additive", "window": 3, "positions": "alibi", "num_kv_heads": 1},
    "chunked": {"chunked_heads": True},
    "chunked-bilinear": {"chunked_heads": True, "score": "bilinear", "head_dim": 6, "bias": False},
    "no-feed-forward": {"feedforward": False},
    "no-residual": {"residual": False},
    "no-residual-post-norm": {"residual": False, "norm_position": "post"},
    "no-norm": {"norm": "none"},
    "attention-only": {"feedforward": False, "residual": False, "norm": "none", "positions": "none"},
}
"""What the usual Transformer has, changed or left out; kernels do not serve these."""
_CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "kernel-3": {},
    "kernel-4": {"kernel": 4, "positions": "none"},
    "kernel-1": {"kernel": 1, "positions": {"kind": "learned", "table": 32}},
    "ungated": {"gate": False},
    "dilated": {"dilation_base": 2},
    "dilated-ungated-no-residual": {"kernel": 2, "dilation_base": 2, "gate": False, "residual": False},
}
_CROSS: dict[str, dict[str, Any]] = {
    **{name: {"score": name} for name in ("dot", "bilinear", "additive")},
    "chunked": {"chunked_heads": True},
}
"""The attention of a convolutional decoder."""
_CELLS = ("rnn", "gru", "lstm")
_CONTEXTS: dict[str, dict[str, Any]] = {
    "dot": {"score": "dot"},
    "scaled-dot": {"score": "scaled-dot"},
    "bilinear": {"score": "bilinear"},
    "additive": {"score": "additive"},
    "every-step": {"context": "every-step"},
    "initial-state": {"context": "initial-state"},
    "copy": {"context": "initial-state", "bridge": "copy"},
    "copy-attention": {"bridge": "copy"},
}


def _transformers(positions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    named = {f"positions-{name}": {"positions": value} for name, value in positions.items()}
    heads = {"family": "transformer", "num_heads": 2}
    return {f"transformer-{name}": heads | options for name, options in (named | _TRANSFORMERS | SWITCHES).items()}


_ENCODERS = (
    _transformers(ENCODER_POSITIONS)
    | {f"recurrent-{cell}": {"family": "recurrent", "cell": cell} for cell in _CELLS}
    | {"recurrent-residual": {"family": "recurrent", "residual": True}}
    | {"recurrent-projected": {"family": "recurrent", "memory_dim": 5, "clip": 0.3, "residual": True}}
    | {f"convolutional-{name}": {"family": "convolutional"} | options for name, options in _CONVOLUTIONS.items()}
)
_DIRECTED = [name for name in _ENCODERS if name.startswith(("recurrent", "convolutional", "transformer-window"))] + [
    f"transformer-positions-{name}" for name in ("sinusoidal", "rotary", "alibi", "relative")
]
ENCODERS = _ENCODERS | {
    f"{name}-{direction}": _ENCODERS[name] | {"direction": direction}
    for name, direction in itertools.product(_DIRECTED, ("forward", "backward"))
}
_CONVOLUTIONAL = {"family": "convolutional", "num_heads": 2}
_FREE = _transformers(POSITIONS) | {
    f"convolutional-{name}": _CONVOLUTIONAL | options for name, options in _CONVOLUTIONS.items()
}
_ALONE = _FREE | {f"recurrent-{cell}": {"family": "recurrent", "cell": cell} for cell in _CELLS}
_BESIDE = _FREE | {f"convolutional-{name}": _CONVOLUTIONAL | options for name, options in _CROSS.items()}
_BESIDE |= {
    f"recurrent-{cell}-{name}": {"family": "recurrent", "cell": cell} | options
    for cell, (name, options) in itertools.product(_CELLS, _CONTEXTS.items())
}
_RESIDUAL = {"recurrent-residual": {"family": "recurrent", "residual": True}}
DECODERS = {name: (options, False) for name, options in (_ALONE | _RESIDUAL).items()} | {
    f"{name}-source": (options, True) for name, options in (_BESIDE | _RESIDUAL).items()
}
"""The options of each decoder, and whether it has a source."""


def make_encoder(options: dict[str, Any]) -> Encoder:
    """A small encoder in float64, with no weight left at a special value."""
    config = {"num_layers": LAYERS, "model_dim": DIM} | options
    torch.manual_seed(0)
    return shake(build_encoder(_ENCODER.validate_python(config)))


def make_decoder(options: dict[str, Any], source: bool) -> Decoder:
    """A small decoder in float64; its source is of another width, where its score function allows it."""
    config = {"num_layers": LAYERS, "model_dim": DIM} | options
    torch.manual_seed(0)
    memory_dim = _memory_dim(options) if source else None
    return shake(build_decoder(_DECODER.validate_python(config), memory_dim))


def make_memory(options: dict[str, Any], source: bool, lengths: list[int]) -> Encoded | None:
    """An encoded source for a decoder that has one, with rubbish where its padding is."""
    if not source:
        return None
    width = _memory_dim(options)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    states, summary = randn(*mask.shape, width), randn(len(lengths), width)
    final = None
    if options.get("bridge") == "copy":
        final = randn(len(lengths), options.get("num_layers", LAYERS), 2 if options["cell"] == "lstm" else 1, DIM)
        final = final.requires_grad_()
    return Encoded(
        states.masked_fill(~mask[:, :, None], 100.0).requires_grad_(), mask, summary.requires_grad_(), final=final
    )


def _memory_dim(options: dict[str, Any]) -> int:
    return DIM if "dot" in options.get("score", "") else MEMORY_DIM


def reach(options: dict[str, Any]) -> tuple[float, float]:
    """How far to the left and to the right a position sees, after all layers."""
    direction = options.get("direction", "both")
    match options["family"]:
        case "transformer" if "window" in options:
            window = options["window"]
            left, right = (window // 2, (window - 1) // 2) if direction == "both" else (window - 1, window - 1)
        case "convolutional":
            kernel = options.get("kernel", 3)
            left, right = ((kernel - 1) // 2, kernel // 2) if direction == "both" else (kernel - 1, kernel - 1)
        case _:
            left = right = math.inf
    farther = sum(options.get("dilation_base", 1) ** layer for layer in range(LAYERS))
    return 0 if direction == "backward" else farther * left, 0 if direction == "forward" else farther * right


def shake(module: M) -> M:
    """Float64, evaluation, and noise on every parameter: none may hide at 0 or 1."""
    module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, dtype=torch.bool)


def lay_out(rows: list[Tensor], padding: str) -> tuple[Tensor, Tensor]:
    """Rows of different lengths in one batch; its padding is not a number."""
    width = max(len(row) for row in rows) + 2
    x, mask = torch.full((len(rows), width, DIM), torch.nan).double(), torch.zeros(len(rows), width, dtype=torch.bool)
    for index, row in enumerate(rows):
        first = {"right": 0, "left": width - len(row), "holes": None}[padding]
        columns = torch.randperm(width)[: len(row)].sort().values
        if first is not None:
            columns = torch.arange(first, first + len(row))
        x[index, columns], mask[index, columns] = row, True
    return x, mask


def influence(outputs: Tensor, inputs: Tensor) -> Tensor:
    """Entry (i, j) is True where output position i of the one row depends on input position j."""
    rows = [torch.autograd.grad((out * randn(*out.shape)).sum(), inputs, retain_graph=True)[0] for out in outputs[0]]
    return torch.stack(rows)[:, 0].abs().amax(-1) > 0


def seen(length: int, left: float, right: float) -> Tensor:
    """The (i, j) with i − left ≤ j ≤ i + right."""
    place = torch.arange(length)
    ahead = place - place[:, None]
    return (ahead >= -left) & (ahead <= right)
