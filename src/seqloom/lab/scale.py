"""Why scores are divided by √d, and where a norm belongs.

A product of two random vectors of d coordinates has the variance d. Undivided, the larger ones of such scores take all
the weight, and the gradient of the softmax is gone: of ∂softmax = diag(p) − p pᵀ, the trace 1 − Σ p² is what is left of
it (Vaswani et al. 2017, §3.2.1, note 4).

In a deep stack before training, the gradient of the last layer does not depend on the depth L with post-norm, while
with pre-norm it falls as 1/√L (Xiong et al. 2020, theorem 1), which is why pre-norm needs no warm-up.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F

from seqloom.config.base import Positive
from seqloom.config.stacks import TransformerEncoderConfig
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.lab.chart import Axis, Lines, Series
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.lab.summary import Summary
from seqloom.models.stacks import build_encoder
from seqloom.nn.attention import Dot, ScaledDot, Score, attention_weights

_SCORES: dict[str, Score] = {"q·k": Dot(), "q·k / √d": ScaledDot()}


class ScaleParameters(Parameters):
    """Widths of heads, and depths of stacks."""

    dims: tuple[Positive, ...] = (4, 16, 64, 256, 1024)
    """Widths of queries and keys."""
    keys: Positive = 16
    """Keys to choose from."""
    queries: Positive = 2000
    """Queries that are averaged over."""
    depths: tuple[Positive, ...] = (6, 12, 24)
    """Layers of the stacks."""
    model_dim: Positive = 64
    """Their width."""
    repetitions: Positive = 8
    """Stacks that are averaged over."""


class Scale(Experiment[ScaleParameters]):
    """Softmax over widths, gradients over depths."""

    name = "scale"
    teaches = (
        "Products of wider vectors are larger, and an undivided softmax then chooses one key and passes no gradient; "
        "√d keeps both as they are."
    )
    parameters = ScaleParameters
    smallest: ClassVar = {"dims": (4, 64, 1024), "queries": 300, "depths": (6, 24), "model_dim": 32, "repetitions": 4}

    def list_units(self, parameters: ScaleParameters) -> Sequence[str]:
        """The softmax, and the two places of a norm."""
        return ["softmax", "pre", "post"]

    def measure(self, parameters: ScaleParameters, unit: str, seed: int, folder: Path) -> Found:
        """The mean over random queries, or over stacks before any training."""
        if unit == "softmax":
            return _measure_softmax(parameters)
        norms = [
            [_measure_gradient(parameters, unit, depth) for depth in parameters.depths] for _ in _times(parameters)
        ]
        return {"last_layer": torch.tensor(norms).mean(0).tolist()}

    def report(self, parameters: ScaleParameters, results: Results) -> Report:
        """Tables over widths and over depths."""
        dims, depths = parameters.dims, parameters.depths
        largest = {name: results.summarise_each("softmax", f"largest {name}") for name in _SCORES}
        passed = {name: results.summarise_each("softmax", f"passed {name}") for name in _SCORES}
        last = {unit: results.summarise_each(unit, "last_layer") for unit in ("pre", "post")}
        rows = [
            [f"{what}, {name}", *(one.spell(2) for one in found[name])]
            for what, found in (("largest weight", largest), ("gradient that passes", passed))
            for name in _SCORES
        ]
        deep = [[f"{unit}-norm", *(one.spell(3) for one in found)] for unit, found in last.items()]
        claims = [
            Claim(
                "large products make the softmax's gradients small; dividing by √d helps",
                passed["q·k"][-1].mean < 0.5 * passed["q·k / √d"][-1].mean,
                f"at d = {dims[-1]:,}, {passed['q·k'][-1].spell(2)} of the gradient passes undivided and "
                f"{passed['q·k / √d'][-1].spell(2)} divided; the largest of {parameters.keys} weights is "
                f"{largest['q·k'][-1].spell(2)} and {largest['q·k / √d'][-1].spell(2)}",
            ),
            Claim(
                "at the start, pre-norm makes the last layer's gradient smaller with depth, and post-norm does not",
                last["pre"][-1].mean < 0.9 * last["pre"][0].mean and last["post"][-1].mean > 0.9 * last["post"][0].mean,
                f"from {depths[0]} to {depths[-1]} layers: {last['pre'][0]} to {last['pre'][-1]} with pre-norm, "
                f"{last['post'][0]} to {last['post'][-1]} with post-norm",
            ),
        ]
        wide = Axis("width of queries and keys", log=True, ticks=tuple(map(float, dims)))
        share, deeper = Axis("share", low=0.0, high=1.0), Axis("layers", ticks=tuple(map(float, depths)))
        panels = [
            Lines("largest weight", wide, share, [_curve(name, dims, one) for name, one in largest.items()]),
            Lines("gradient that passes", wide, share, [_curve(name, dims, one) for name, one in passed.items()]),
            Lines(
                "gradient of the last layer",
                deeper,
                Axis("norm", low=0.0),
                [_curve(f"{unit}-norm", depths, one) for unit, one in last.items()],
            ),
        ]
        return Report(
            [
                Table("The softmax of random scores", ["width", *(f"{dim:,}" for dim in dims)], rows),
                Table("Norm of the last layer's gradient before training", ["layers", *map(str, depths)], deep),
            ],
            panels,
            claims,
            "Curves over the width of a head: undivided, one key takes all the weight; and over the depth of a stack",
            columns=3,
        )


def _times(parameters: ScaleParameters) -> range:
    return range(parameters.repetitions)


def _curve(name: str, places: Sequence[int], found: Sequence[Summary]) -> Series:
    points = [(float(place), one.mean) for place, one in zip(places, found, strict=True)]
    return Series(name, points, [one.ends for one in found] if found[0].count > 1 else ())


def _measure_softmax(parameters: ScaleParameters) -> Found:
    """The largest weight, and 1 − Σ p²: the share of the gradient that the softmax lets through."""
    found: Found = {f"{what} {name}": [] for what in ("largest", "passed") for name in _SCORES}
    for dim in parameters.dims:
        query = torch.randn(parameters.queries, 1, dim)
        key = torch.randn(parameters.queries, parameters.keys, dim)
        for name, score in _SCORES.items():
            weights = attention_weights(query, key, score=score)
            found[f"largest {name}"].append(float(weights.amax(-1).mean()))
            found[f"passed {name}"].append(float((1.0 - weights.square().sum(-1)).mean()))
    return found


def _measure_gradient(parameters: ScaleParameters, place: str, depth: int) -> float:
    """The norm of the gradient of the last feed-forward network, for a random question about random states."""
    dim = parameters.model_dim
    config = TransformerEncoderConfig(
        model_dim=dim, num_layers=depth, norm_position="pre" if place == "pre" else "post", dropout=0.0
    )
    encoder = build_encoder(config)
    assert isinstance(encoder, TransformerEncoder)
    _start_as_published(encoder)
    x, mask = torch.randn(4, 16, dim), torch.ones(4, 16, dtype=torch.bool)
    logits = encoder(x, mask).states @ torch.randn(dim, dim) * dim**-0.5
    loss = F.cross_entropy(logits.flatten(0, 1), torch.randint(dim, (64,)))
    last = encoder.blocks[-1].feedforward
    assert last is not None
    (gradient,) = torch.autograd.grad(loss, [last.contract.weight])
    return float(gradient.norm())


@torch.no_grad()
def _start_as_published(encoder: TransformerEncoder) -> None:
    """Glorot's initialisation without biases, which Xiong et al. 2020 assume in §3.1."""
    for parameter in encoder.parameters():
        if parameter.ndim == 2:
            torch.nn.init.xavier_uniform_(parameter)
    for name, parameter in encoder.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()


EXPERIMENT = Scale()
