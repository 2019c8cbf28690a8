"""How a language model learns from its prompt, and which heads do it.

Every line of training gives a few words a label each, drawn anew, and goes on naming words and labels: `dax red wug
blue dax red …`. No word has a label of its own, so all there is to learn is to look back. Two heads in two layers do
that together: one attends to the token before, so that a label carries the word before it; another, the induction head,
finds the label that carries the present word (Elhage et al. 2021; Olsson et al. 2022).

    previous     the mean weight of a label on the word before it
    induction    the mean weight of a word on the labels that followed it earlier in the line
    without it   the share of right labels if what the head gives is replaced by its mean
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from seqloom.config.base import Positive
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.errors import DataError
from seqloom.lab.chart import Axis, Bars, Grid, Lines, Panel, Series
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.lab.learning import learn
from seqloom.models.language_models import LanguageModel
from seqloom.nn.multihead import SelfAttention
from seqloom.predict.load import load
from seqloom.predict.model import Model
from seqloom.types import TokenBatch

_WORDS = ("blick", "dax", "fep", "gorp", "kiv", "lug", "mip", "wug")
_LABELS = ("red", "blue", "green", "black")
_SHOWN = 16  # tokens of a prompt in the picture
_CLEAR = 0.3  # of a head's attention: enough to say what it does
_MODEL = """task = "language-model"
tokenizer = {{kind = "words", min_frequency = 1}}
data = {{train = {{files = "lines"}}, valid_fraction = 0.05, checks.duplicate = "off"}}
[batch]
tokens = 1024
rows = {{kind = "lines", max_length = 40}}
[model]
embedding_dropout = 0.0
[model.decoder]
num_layers = 2
num_heads = {heads}
model_dim = {dim}
dropout = 0.0
"""


class HeadsParameters(Parameters):
    """The size and training of the model, and how it is asked."""

    heads: Positive = 4
    """Attention heads in each of two layers."""
    model_dim: Positive = 64
    """The width of the model."""
    steps: Positive = 500
    """How long it is trained."""
    lines: Positive = 8000
    """How many lines it is trained on."""
    snapshots: Positive = 10
    """At how many moments of the training it is looked at."""
    asked: Positive = 100
    """How many fresh lines it is asked about."""
    words: Positive = 4
    """Words that are named in a line; there are eight in all."""
    pairs: Positive = 16
    """How often a line names a word and its label."""


class Heads(Experiment[HeadsParameters]):
    """Roles of heads, what is left without them, and when they appear."""

    name = "heads"
    teaches = (
        "Two heads in two layers let a model learn from its prompt: one carries each word to the next place, the other "
        "finds where the present word was carried to."
    )
    parameters = HeadsParameters
    smallest: ClassVar = {"heads": 2, "steps": 400, "lines": 3000, "snapshots": 2, "asked": 40, "model_dim": 48}
    trains = True

    def list_units(self, parameters: HeadsParameters) -> Sequence[str]:
        """One model."""
        return ["model"]

    def measure(self, parameters: HeadsParameters, unit: str, seed: int, folder: Path) -> Found:
        """Train it, describe its heads, take them away, and look at its snapshots."""
        rng = random.Random(seed)
        lines = [_draw_line(rng, parameters) for _ in range(parameters.lines)]
        config = _MODEL.format(heads=parameters.heads, dim=parameters.model_dim)
        moments = {"seed": seed, "steps": parameters.steps, "snapshots": parameters.snapshots}
        model = learn(folder, config, {"lines": lines}, **moments)
        asked = [_draw_line(rng, parameters) for _ in range(parameters.asked)]
        roles = _describe(model, asked[:10])
        without = {site: _judge(model, asked, [site]) for site in roles}
        carrying = [
            site for site, (previous, _) in roles.items() if site.startswith("decoder.0.") and previous > _CLEAR
        ]
        inductive = [
            site for site, (_, induction) in roles.items() if not site.startswith("decoder.0.") and induction > _CLEAR
        ]
        shown = model.trace(asked[0])
        best = max(roles, key=lambda site: roles[site][1])
        return {
            "sites": list(roles),
            "previous": [one for one, _ in roles.values()],
            "induction": [one for _, one in roles.values()],
            "accuracy": _judge(model, asked, []),
            "without": list(without.values()),
            "previous heads": carrying,
            "without previous heads": _judge(model, asked, carrying),
            "induction heads": inductive,
            "without induction heads": _judge(model, asked, inductive),
            "tokens": [token.text for token in shown.side("text").tokens][:_SHOWN],
            "weights": [[round(float(one), 4) for one in row[:_SHOWN]] for row in shown.mixing(best)[:_SHOWN]],
            "best head": best,
            **_follow(folder, asked),
        }

    def report(self, parameters: HeadsParameters, results: Results) -> Report:
        """The heads of the first seed, and the means over all seeds."""
        first, chance = results.first("model"), 1 / len(_LABELS)
        rows = [
            [site, f"{previous:.2f}", f"{induction:.2f}", f"{without:.2f}"]
            for site, previous, induction, without in zip(
                *(first[key] for key in ("sites", "previous", "induction", "without")), strict=True
            )
        ]
        accuracy, gone, lost = (
            results.summarise("model", key) for key in ("accuracy", "without induction heads", "without previous heads")
        )
        for kind in ("previous", "induction"):
            heads = first[f"{kind} heads"]
            rows.append(
                [f"all {len(heads)} {kind} heads of their layer", "", "", f"{first[f'without {kind} heads']:.2f}"]
            )
        rows.append(["none taken away", "", "", f"{first['accuracy']:.2f}"])
        claims = [
            Claim(
                "a language model learns from its prompt, with no weight changed",
                accuracy.mean > 0.9,
                f"{accuracy.spell(2)} of the labels right, where chance is {chance:.2f}",
            ),
            Claim(
                "that is what induction heads are for",
                gone.mean < chance + 0.25,
                f"{gone.spell(2)} right without the heads of the second layer whose induction is above {_CLEAR}",
            ),
            Claim(
                "they need heads that attend to the token before",
                lost.mean < accuracy.mean - 0.2,
                f"{lost.spell(2)} right without the heads of the first layer whose previous is above {_CLEAR}",
            ),
        ]
        steps = [float(step) for step in first["steps"]]
        curves = {"labels right": "accuracies", "best previous": "best previous", "best induction": "best induction"}
        labels = [site.removeprefix("decoder.").replace(".head.", "·") for site in first["sites"]]
        panels: list[Panel] = [
            Lines(
                "while it is trained",
                Axis("steps"),
                Axis("share", low=0.0, high=1.0),
                [
                    Series(
                        name, list(zip(steps, [one.mean for one in results.summarise_each("model", key)], strict=True))
                    )
                    for name, key in curves.items()
                ],
            ),
            Bars(
                "each head (layer·head)",
                labels,
                Axis("share", low=0.0, high=1.0),
                [
                    ("previous", first["previous"]),
                    ("induction", first["induction"]),
                    ("right without it", first["without"]),
                ],
            ),
            Grid(
                f"{first['best head']} on a prompt",
                first["tokens"],
                first["tokens"],
                first["weights"],
                "at",
                "attends to",
            ),
        ]
        title = "Heads of a two-layer language model" + (" (first seed)" if accuracy.count > 1 else "")
        head = ["head", "previous", "induction", "labels right without it"]
        picture = "Curves over training in which the labels become right as induction appears; bars for each head"
        return Report([Table(title, head, rows)], panels, claims, picture, columns=3)


def inspect(model: Model) -> Report:
    """What each head of somebody's model does, on random tokens that are read twice."""
    roles = model.heads()
    keys = ("previous", "duplicate", "induction")
    known = [one for one in roles if ".head." in one.site and one.previous is not None]
    if not known:
        raise DataError(
            "this model has no layer whose positions attend to each other, so there are no heads to describe"
        )
    rows = [[one.site, *(f"{getattr(one, key) or 0.0:.2f}" for key in keys)] for one in known]
    best = {key: max(known, key=lambda one: getattr(one, key) or 0.0) for key in keys}
    claims = [
        Claim(
            said, (getattr(best[key], key) or 0.0) > _CLEAR, f"{best[key].site}: {getattr(best[key], key) or 0.0:.2f}"
        )
        for key, said in (
            ("previous", "some head attends to the token before"),
            ("induction", "some head attends to what followed the same token before"),
        )
    ]
    shown = sorted(known, key=lambda one: -max(getattr(one, key) or 0.0 for key in keys))[:8]
    names = [one.site.replace(".head.", "·").replace("decoder.", "d").replace("encoder.", "e") for one in shown]
    bars = [(key, [getattr(one, key) or 0.0 for one in shown]) for key in keys]
    table = Table("On random tokens that are read twice", ["site", *keys], rows)
    panel = Bars("the clearest ones (layer·head)", names, Axis("mean weight", low=0.0, high=1.0), bars)
    return Report([table], [panel], claims, "Bars: what the clearest heads attend to", columns=1)


def _draw_line(rng: random.Random, parameters: HeadsParameters) -> str:
    """Words and labels; each of some words has a label that is drawn for it."""
    meaning = {word: rng.choice(_LABELS) for word in rng.sample(_WORDS, min(parameters.words, len(_WORDS)))}
    return " ".join(f"{word} {meaning[word]}" for word in rng.choices(list(meaning), k=parameters.pairs))


def _describe(model: Model, lines: Sequence[str]) -> dict[str, tuple[float, float]]:
    """How much labels attend to the word before, and words to the labels that followed them, for each head."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for line in lines:
        trace, tokens = model.trace(line), line.split()
        words = range(0, len(tokens), 2)  # at even places; labels stand after them
        for site in trace.sites:
            weights = trace.mixing(site)
            previous, induction = found.setdefault(site, ([], []))
            previous += [float(weights[at + 1, at]) for at in words]
            earlier = {at: [one + 1 for one in words if one < at and tokens[one] == tokens[at]] for at in words}
            induction += [float(weights[at, places].sum()) for at, places in earlier.items() if places]
    return {site: (sum(one) / len(one), sum(two) / len(two)) for site, (one, two) in found.items()}


@torch.no_grad()
def _judge(model: Model, lines: Sequence[str], ablated: Sequence[str]) -> float:
    """The share of labels that are right, of words that the line has named before."""
    network, encode = model.network, model.tokenizer.encode
    assert isinstance(network, LanguageModel)
    ids = torch.tensor([encode(line).ids for line in lines])
    labels = torch.tensor([encode(label).ids[0] for label in _LABELS])
    with _ablate(network, ablated):
        scores = network.output(network(TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool))))
    chosen = labels[scores[:, :-1, labels].argmax(-1)]
    known = torch.tensor([[word in line.split()[:at] for at, word in enumerate(line.split())] for line in lines])
    asked = known[:, :-1].clone()
    asked[:, 1::2] = False  # words stand at even places, and labels after them
    return float((chosen == ids[:, 1:])[asked].float().mean())


@contextmanager
def _ablate(network: LanguageModel, sites: Sequence[str]) -> Iterator[None]:
    """What these heads give is replaced by its mean over all lines and positions."""
    handles = []
    assert isinstance(network.decoder, TransformerDecoder)
    for layer, block in enumerate(network.decoder.blocks):
        heads = [int(site.split(".")[-1]) for site in sites if site.startswith(f"decoder.{layer}.head.")]
        if heads:
            handles.append(block.attention.out_projection.register_forward_pre_hook(_replace(block.attention, heads)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _replace(attention: SelfAttention, heads: Sequence[int]) -> Any:
    def hook(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        rows = inputs[0].clone()
        for head in heads:
            columns = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
            rows[:, columns] = rows[:, columns].mean(0)
        return (rows,)

    return hook


def _follow(folder: Path, lines: Sequence[str]) -> Found:
    """The same at moments of the training."""
    found: Found = {"steps": [], "accuracies": [], "best previous": [], "best induction": []}
    for moment in sorted((folder / "run" / "snapshots").glob("step-*")):
        model = load(moment)
        roles = _describe(model, lines[:5])
        found["steps"].append(int(moment.name.removeprefix("step-")))
        found["accuracies"].append(_judge(model, lines, []))
        found["best previous"].append(max(previous for previous, _ in roles.values()))
        found["best induction"].append(max(induction for _, induction in roles.values()))
    return found


EXPERIMENT = Heads()
