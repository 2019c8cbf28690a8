"""What attention does to a sequence if nothing else does anything.

A layer of attention replaces each state by means of all states, so after a few layers all positions have the same
state: the part of the states that differs between positions shrinks doubly exponentially with depth (Dong et al. 2021,
"Attention is not all you need: pure attention loses rank doubly exponentially with depth", theorem 2.2).

    what differs = |X − 1 x̄ᵀ| / |X|,        x̄ the mean over positions

The second half asks a trained model how much each sublayer changes the stream that it adds to, and in how many
directions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.config.base import Positive
from seqloom.config.positions import NoPositions
from seqloom.config.stacks import TransformerEncoderConfig
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.lab.chart import Axis, Bars, Lines, Series
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.lab.grammar import draw_sentences, spell
from seqloom.lab.learning import learn
from seqloom.models.stacks import build_encoder
from seqloom.nn.transformer import TransformerBlock
from seqloom.predict.model import Model

_STACKS: dict[str, dict[str, Any]] = {
    "attention alone": {"residual": False, "feedforward": False, "norm": "none"},
    "with feed-forward": {"residual": False, "norm": "none"},
    "with residual": {"feedforward": False, "norm": "none"},
    "with both": {"norm": "none"},
    "as usual, with norms": {},
}
_MODEL = """task = "language-model"
tokenizer = {{kind = "words", min_frequency = 1}}
data = {{train = {{files = "sentences"}}, valid_fraction = 0.05, checks.duplicate = "off"}}
[batch]
tokens = 1024
rows = {{kind = "lines", max_length = 20}}
[model]
embedding_dropout = 0.0
[model.decoder]
num_layers = {layers}
model_dim = {dim}
dropout = 0.0
"""


class CollapseParameters(Parameters):
    """Stacks before training, and one that is trained."""

    layers: Positive = 6
    """Layers of the stacks that are not trained."""
    tokens: Positive = 32
    """Positions of their input."""
    model_dim: Positive = 64
    """The width of all stacks."""
    repetitions: Positive = 5
    """Random stacks and inputs that are averaged over."""
    trained_layers: Positive = 4
    """Layers of the model that is trained."""
    steps: Positive = 300
    """How long it is trained."""
    sentences: Positive = 6000
    """How many sentences it is trained on."""


class Collapse(Experiment[CollapseParameters]):
    """What differs between positions, layer by layer; and how much a sublayer adds."""

    name = "collapse"
    teaches = (
        "Attention alone makes all positions the same within a few layers; it is the residual connections that keep "
        "them apart."
    )
    parameters = CollapseParameters
    smallest: ClassVar = {
        "layers": 3,
        "repetitions": 2,
        "trained_layers": 2,
        "steps": 40,
        "sentences": 1000,
        "model_dim": 32,
    }

    def list_units(self, parameters: CollapseParameters) -> Sequence[str]:
        """Each kind of stack, and the trained model."""
        return [*_STACKS, "trained"]

    def measure(self, parameters: CollapseParameters, unit: str, seed: int, folder: Path) -> Found:
        """What differs after each layer; or what each sublayer adds to the stream."""
        if unit != "trained":
            rows = [_measure_stack(parameters, _STACKS[unit]) for _ in range(parameters.repetitions)]
            return {"differs": torch.tensor(rows).log().mean(0).exp().tolist()}
        sentences = [spell(one) for one in draw_sentences(seed, parameters.sentences)]
        config = _MODEL.format(layers=parameters.trained_layers, dim=parameters.model_dim)
        model = learn(folder, config, {"sentences": sentences}, seed=seed, steps=parameters.steps)
        return _measure_updates(model, [spell(one) for one in draw_sentences(seed + 1, 100, held_out=True)])

    def report(self, parameters: CollapseParameters, results: Results) -> Report:
        """Curves over layers, bars over sublayers."""
        differs = {unit: results.summarise_each(unit, "differs") for unit in _STACKS}
        names = results.first("trained")["sublayers"]
        ratios, dims, whole = (
            results.summarise_each("trained", key) for key in ("ratios", "directions", "directions of the stream")
        )
        layers = range(parameters.layers + 1)
        alone, residual = differs["attention alone"], differs["with residual"]
        most, least = max(ratios, key=lambda one: one.mean), min(ratios, key=lambda one: one.mean)
        share = [one.mean / other.mean for one, other in zip(dims, whole, strict=True)]
        claims = [
            Claim(
                "repeated attention without a feed-forward network computes only weighted averages",
                alone[-1].mean < 1e-3,
                f"after {parameters.layers} layers {alone[-1].spell_small()} of the states differs between "
                "positions; less than 1e-15 is rounding",
            ),
            Claim(
                "a feed-forward network is enough to prevent that",
                differs["with feed-forward"][-1].mean > residual[-1].mean,
                f"with it alone {differs['with feed-forward'][-1].spell_small()} is left, with residual connections "
                f"alone {residual[-1].spell_small()}",
            ),
            Claim(
                "residual connections let each layer update only a small subspace of the state",
                most.mean < 0.5 and max(share) < 0.5,
                f"in this small model, an update is {least.spell(2)} to {most.spell(2)} times as long as what it is "
                f"added to, and lies in {min(share):.0%} to {max(share):.0%} as many directions",
            ),
        ]
        rows = [[unit, *(one.spell_small() for one in found)] for unit, found in differs.items()]
        added = [["length, relative to the stream", *(one.spell(2) for one in ratios)]]
        added += [["directions that hold 90% of it", *(one.spell(0) for one in dims)]]
        added += [["directions that hold 90% of the stream", *(one.spell(0) for one in whole)]]
        curves = [
            Series(unit, [(float(layer), one.mean) for layer, one in zip(layers, found, strict=True)])
            for unit, found in differs.items()
        ]
        short = [name.replace("attention", "att.").replace("feed-forward", "ff") for name in names]
        bars = [("update / stream", [one.mean for one in ratios])]
        return Report(
            [
                Table("What differs between positions, before training", ["layers", *map(str, layers)], rows),
                Table("What each sublayer of a trained model adds", ["", *names], added),
            ],
            [
                Lines("what differs between positions", Axis("layers"), Axis("share of the states", log=True), curves),
                Bars(
                    "what a sublayer adds",
                    short,
                    Axis("length of update / stream", low=0.0),
                    bars,
                    label="attention (att.) and feed-forward (ff) of each layer",
                ),
            ],
            claims,
            "Curves that fall to nothing for attention alone and stay for residual connections; bars for each sublayer",
        )


@torch.no_grad()
def _measure_stack(parameters: CollapseParameters, options: dict[str, Any]) -> list[float]:
    config = TransformerEncoderConfig(
        model_dim=parameters.model_dim, num_layers=parameters.layers, dropout=0.0, positions=NoPositions(), **options
    )
    encoder = build_encoder(config).double().eval()
    x = torch.randn(1, parameters.tokens, parameters.model_dim, dtype=torch.float64)
    layers = encoder(x, torch.ones(1, parameters.tokens, dtype=torch.bool), all_layers=True).layers
    return [_measure_difference(layer[0]) for layer in layers]


def _measure_difference(states: Float[Tensor, "T D"]) -> float:
    return float((states - states.mean(0)).norm() / states.norm())


@torch.no_grad()
def _measure_updates(model: Model, texts: Sequence[str]) -> Found:
    """The length of each sublayer's output, relative to its input in the stream, and the directions it lies in."""
    decoder = model.network.get_submodule("decoder")
    assert isinstance(decoder, TransformerDecoder)
    updates: dict[str, list[Tensor]] = {}
    streams: dict[str, list[Tensor]] = {}

    def watch(name: str) -> Any:
        def hook(module: Any, inputs: tuple[Tensor, ...], out: Tensor) -> None:
            updates.setdefault(name, []).append(out - inputs[0])
            streams.setdefault(name, []).append(inputs[0])

        return hook

    handles = []
    for number, block in enumerate(decoder.blocks, 1):
        assert isinstance(block, TransformerBlock)
        assert block.feedforward_residual is not None
        handles.append(block.attention_residual.register_forward_hook(watch(f"attention {number}")))
        handles.append(block.feedforward_residual.register_forward_hook(watch(f"feed-forward {number}")))
    model.score(list(texts))
    for handle in handles:
        handle.remove()
    pairs = [(torch.cat(updates[name]), torch.cat(streams[name])) for name in updates]
    return {
        "sublayers": list(updates),
        "ratios": [float((update.norm(dim=-1) / stream.norm(dim=-1)).mean()) for update, stream in pairs],
        "directions": [_count_directions(update) for update, _ in pairs],
        "directions of the stream": [_count_directions(stream) for _, stream in pairs],
    }


def _count_directions(updates: Float[Tensor, "N D"], share: float = 0.9) -> int:
    """The number of principal directions that hold a share of the squared length."""
    energy = torch.linalg.svdvals(updates.double()).square()
    return 1 + int((energy.cumsum(0) / energy.sum() < share).sum())


EXPERIMENT = Collapse()
