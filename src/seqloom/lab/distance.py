"""How far back a layer can look: gradients over distance, memory over distance, and layers over length.

    gradient     |∂y_n / ∂x_{n−t}|, the length of the gradient of the last output by the input t positions before it
    memory       a model is shown a word, then t times nothing, then asked which word it was
    layers       how many it takes until the first position can change the last of n

The number of operations on the path of a signal is what differs (Vaswani et al. 2017, table 1): n of a recurrence, 1 of
attention, (n − 1)/(k − 1) of convolutions of width k, log_k n of dilated ones, (n − 1)/(r − 1) of causal attention to r
positions. Reach is measured by gradients: the graph of automatic differentiation does not show it, because a fused
recurrence is one node of any length.
"""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from seqloom.config.base import Positive
from seqloom.config.stacks import EncoderConfig
from seqloom.decoders.base import Decoder
from seqloom.encoders.base import Encoder
from seqloom.lab.chart import Axis, Lines, Series
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.lab.learning import learn
from seqloom.lab.summary import Summary
from seqloom.models.language_models import LanguageModel
from seqloom.models.stacks import build_encoder
from seqloom.predict.model import Model

_FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {"family": "transformer", "num_heads": 4},
    "lstm": {"family": "recurrent"},
    "convolution": {"family": "convolutional"},
}
_PATHS: dict[str, dict[str, Any]] = {
    "attention": {"family": "transformer", "num_heads": 1, "positions": "none"},
    "window of 8": {"family": "transformer", "num_heads": 1, "positions": "none", "window": 8},
    "kernel of 3": {"family": "convolutional", "positions": "none"},
    "dilated kernel of 3": {"family": "convolutional", "positions": "none", "dilation_base": 3},
}
_WORDS = tuple("abcdefgh")
_PROJECTIONS = 16
_MODEL = """task = "language-model"
tokenizer = {{kind = "words", min_frequency = 1}}
data = {{train = {{files = "lines"}}, valid_fraction = 0.05, checks.duplicate = "off"}}
[batch]
tokens = 2048
rows = {{kind = "lines", max_length = {longest}}}
[model]
embedding_dropout = 0.0
[model.decoder]
{family}
num_layers = {layers}
model_dim = {dim}
dropout = 0.0
"""

Several = Annotated[int, Field(ge=2)]


class DistanceParameters(Parameters):
    """Lengths, and the size and training of the models."""

    length: Several = 128
    """Positions, where gradients are measured before training."""
    layers: Positive = 2
    """Layers of all models."""
    model_dim: Positive = 64
    """Their width."""
    farthest: Positive = 64
    """The longest distance over which a word is to be remembered."""
    steps: Positive = 250
    """How long models are trained."""
    lines: Positive = 4000
    """How many lines they are trained on."""
    memory: bool = True
    """Whether models are trained to remember, too."""
    lengths: Annotated[tuple[Several, ...], Field(min_length=1)] = (5, 9, 17, 33, 65, 129)
    """Lengths whose ends are to be connected."""


class Distance(Experiment[DistanceParameters]):
    """Gradients, memory and layers over distance."""

    name = "distance"
    teaches = (
        "Attention reaches every position in one step; a recurrence loses the gradient on the way, and a convolution "
        "sees nothing beyond its kernels, unless they are dilated."
    )
    parameters = DistanceParameters
    smallest: ClassVar = {"length": 65, "layers": 1, "model_dim": 32, "memory": False, "lengths": (9, 65)}
    trains = True

    def list_units(self, parameters: DistanceParameters) -> Sequence[str]:
        """Each family before training, trained on near and far words, and on far ones; and the layers of each path."""
        kinds = ("fresh", "trained", "far") if parameters.memory else ("fresh",)
        return [*(f"{kind} {name}" for kind in kinds for name in _FAMILIES), "layers"]

    def measure(self, parameters: DistanceParameters, unit: str, seed: int, folder: Path) -> Found:
        """Gradients of random states; gradients and answers of a trained model; or the layers that are needed."""
        if unit == "layers":
            return {name: [_count_layers(options, n) for n in parameters.lengths] for name, options in _PATHS.items()}
        kind, name = unit.split()
        if kind == "fresh":
            encoder = _build(_FAMILIES[name], parameters.layers, parameters.model_dim)
            return {"gradient": _measure_gradients(encoder, torch.randn(1, parameters.length, parameters.model_dim))}
        rng, far = random.Random(seed), parameters.farthest
        distances = [far] * parameters.lines
        if kind == "trained":  # each power of two as often as the next
            distances = [round(math.exp(rng.uniform(0.0, math.log(far)))) for _ in distances]
        lines = [_spell_line(rng.choice(_WORDS), distance) for distance in distances]
        family = "\n".join(f"{key} = {value!r}" for key, value in _FAMILIES[name].items())
        sizes = {"layers": parameters.layers, "dim": parameters.model_dim, "longest": far + 8}
        config = _MODEL.format(**sizes, family=family)
        model = learn(folder, config, {"lines": lines}, seed=seed, steps=parameters.steps)
        return {"accuracy": [_ask(model, distance) for distance in _list_distances(far)], **_differentiate(model, far)}

    def report(self, parameters: DistanceParameters, results: Results) -> Report:
        """Curves over distance and a staircase over length."""
        fresh = {name: results.summarise_each(f"fresh {name}", "gradient") for name in _FAMILIES}
        layers = results.first("layers")
        shown = [t for t in (1, 4, 16, 64, 127) if t < parameters.length]
        tables = [
            Table(
                "|∂y_n / ∂x_{n−t}| before training",
                ["t", *map(str, shown)],
                [[name, *(found[t].spell_small() for t in shown)] for name, found in fresh.items()],
            ),
            Table(
                "Layers until the first of n positions reaches the last",
                ["n", *map(str, parameters.lengths)],
                [[name, *map(str, found)] for name, found in layers.items()],
            ),
        ]
        panels = [_plot("gradient before training", fresh), _draw_layers(parameters.lengths, layers)]
        claims = _claim_paths(parameters, fresh, layers)
        if parameters.memory:
            table, more, claim = _show_memory(parameters, results)
            tables, panels, claims = [*tables, table], [*panels, *more], [*claims, claim]
        picture = (
            "Curves over distance: the gradient of a recurrence falls, that of attention stays, a convolution's ends"
        )
        return Report(tables, panels, claims, picture)


def _claim_paths(parameters: DistanceParameters, fresh: dict[str, list[Summary]], layers: Found) -> list[Claim]:
    far, last, seen = min(64, parameters.length - 1), parameters.lengths[-1], 2 * parameters.layers + 1
    attention, lstm, convolution = fresh.values()
    dilated, contiguous = layers["dilated kernel of 3"][-1], layers["kernel of 3"][-1]
    flat = max(one.mean for one in attention[1:]) / min(one.mean for one in attention[1:])
    return [
        Claim(
            "gradients vanish over long distances in recurrent networks",
            lstm[far].mean < 1e-6 * lstm[0].mean,
            f"LSTM before training: {lstm[0].spell_small()} at distance 0, {lstm[far].spell_small()} at {far}",
        ),
        Claim(
            "self-attention has a constant path, whatever the distance",
            flat < 10,
            f"its gradients differ by a factor of {flat:.1f} from distance 1 to {parameters.length - 1}",
        ),
        Claim(
            "convolutions need several layers for long distances",
            not any(one.mean for one in convolution[seen:]),
            f"with {parameters.layers} of width 3, the gradient is exactly 0 from distance {seen} on",
        ),
        Claim(
            "convolutions connect n positions in log_k n layers",
            contiguous <= math.ceil(math.log(last, 3)),
            f"n = {last}: {contiguous} layers of width 3; only dilated ones are logarithmic: {dilated}",
        ),
    ]


def _draw_layers(lengths: Sequence[int], layers: Found) -> Lines:
    steps = [
        Series(name, [(float(n), float(m)) for n, m in zip(lengths, found, strict=True)], steps=True)
        for name, found in layers.items()
    ]
    deep = Axis("layers", log=True, low=1.0, high=100.0, ticks=(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0))
    length = Axis("length of the sequence", log=True, ticks=tuple(map(float, lengths)))
    return Lines("layers that connect two ends", length, deep, steps)


def _show_memory(parameters: DistanceParameters, results: Results) -> tuple[Table, list[Lines], Claim]:
    """What trained models remember, and the gradients by which they do."""
    trained = {name: results.summarise_each(f"trained {name}", "gradient") for name in _FAMILIES}
    accuracy = {name: results.summarise_each(f"trained {name}", "accuracy") for name in _FAMILIES}
    alone = {name: results.summarise_each(f"far {name}", "accuracy")[-1] for name in _FAMILIES}
    places = _list_distances(parameters.farthest)
    table = Table(
        "Share of words remembered after t positions",
        ["t", *map(str, places), f"{places[-1]}, trained on these alone"],
        [[name, *(one.spell(2) for one in (*found, alone[name]))] for name, found in accuracy.items()],
    )
    curves = [
        Series(name, [(float(t), one.mean) for t, one in zip(places, found, strict=True)])
        for name, found in accuracy.items()
    ]
    distance = Axis("distance in positions", log=True, ticks=tuple(map(float, places)))
    panels = [
        _plot("gradient after training to remember", trained),
        Lines("words remembered", distance, Axis("share", low=0.0, high=1.0), curves),
    ]
    spelled = ", ".join(f"{name} {found.spell(2)}" for name, found in alone.items())
    claim = Claim(
        "a recurrent network cannot learn to remember what lies far back",
        accuracy["lstm"][-1].mean < 0.5,
        f"words remembered after {parameters.farthest} positions, where all were as far: {spelled}; but where nearer "
        f"ones were shown, too, the LSTM remembers {accuracy['lstm'][-1].spell(2)} of them; by chance "
        f"{1 / len(_WORDS):.2f}",
    )
    return table, panels, claim


def _list_distances(farthest: int) -> list[int]:
    return sorted({1, 2, 4, 8, 16, 32, farthest} & set(range(1, farthest + 1)))


def _plot(title: str, found: dict[str, list[Summary]]) -> Lines:
    curves = [
        Series(name, [(float(t), one.mean) for t, one in enumerate(summaries)]) for name, summaries in found.items()
    ]
    return Lines(title, Axis("distance in positions"), Axis("length of the gradient", log=True), curves)


def _build(options: dict[str, Any], layers: int, dim: int) -> Encoder:
    table = {**options, "num_layers": layers, "model_dim": dim, "dropout": 0.0, "direction": "forward"}
    return build_encoder(TypeAdapter[EncoderConfig](EncoderConfig).validate_python(table)).double().eval()


def _measure_gradients(stack: Encoder | Decoder, x: Tensor) -> list[float]:
    """By distance from the last position: the root of the mean square over random directions of the output."""
    x = x.double().detach().requires_grad_()
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    encoded = stack(x, mask)
    last = (encoded if isinstance(encoded, Tensor) else encoded.states)[:, -1]
    total = torch.zeros(x.shape[1], dtype=torch.float64)
    for _ in range(_PROJECTIONS):
        (gradient,) = torch.autograd.grad((last * torch.randn_like(last)).sum(), x, retain_graph=True)
        total += gradient.square().sum((0, 2)) / len(x)
    lengths: list[float] = (total / _PROJECTIONS).sqrt().flip(0).tolist()
    return lengths


def _count_layers(options: dict[str, Any], length: int) -> int:
    """The first layer whose last state depends on the first input."""
    dilated = "dilation_base" in options
    encoder = _build(options, 1 + math.ceil(math.log(length, 3)) if dilated else length, 4)
    x = torch.randn(1, length, 4, dtype=torch.float64, requires_grad=True)
    layers = encoder(x, torch.ones(1, length, dtype=torch.bool), all_layers=True).layers
    for number, states in enumerate(layers[1:], 1):
        (gradient,) = torch.autograd.grad(states[0, -1].sum(), x, retain_graph=True)
        if gradient[0, 0].any():
            return number
    raise AssertionError(f"{len(layers) - 1} layers do not connect {length} positions")


def _spell_line(word: str, distance: int) -> str:
    """A word, nothing, and the word again `distance` positions after it."""
    return " ".join([word, *["-"] * (distance - 1), "?", word])


def _ask(model: Model, distance: int) -> float:
    """The share of words that are remembered."""
    asked = [_spell_line(word, distance).rsplit(" ", 1)[0] for word in _WORDS]
    answers = model.classify(asked, labels=_WORDS, template="{text} {label}", shots=[])
    return sum(answer.label == word for answer, word in zip(answers, _WORDS, strict=True)) / len(_WORDS)  # type: ignore[union-attr]


def _differentiate(model: Model, distance: int) -> Found:
    """The gradients of the state that answers, by what was read before."""
    network = model.network
    assert isinstance(network, LanguageModel)
    network = network.double()
    rows = [_spell_line(word, distance).rsplit(" ", 1)[0] for word in _WORDS]
    ids = torch.tensor([model.tokenizer.encode(row).ids for row in rows])
    return {"gradient": _measure_gradients(network.decoder, network.embedding(ids))}


EXPERIMENT = Distance()
