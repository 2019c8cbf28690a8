"""Which phenomena of grammar a language model has learned, by minimal pairs.

Two sentences differ in one word, and one of them breaks a rule: `the dogs near the cat sing`, `the dogs near the cat
sings`. A model has learned the rule if it gives the right sentence the higher probability (Marvin & Linzen 2018;
Warstadt et al. 2020, BLiMP). Any model that gives a probability can be asked: a language model log P(x), a masked one
the sum of log P(x_t given all others) (Salazar et al. 2020).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from seqloom.config.base import Positive
from seqloom.errors import DataError
from seqloom.lab.chart import Axis, Bars
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.lab.grammar import PHENOMENA, draw_pairs, draw_sentences, spell
from seqloom.lab.learning import learn
from seqloom.lab.own import note_alike
from seqloom.lab.summary import Summary
from seqloom.predict.model import Model

Pairs = Mapping[str, Sequence[tuple[str, str]]]
"""Right and wrong sentences, by phenomenon."""
_MODELS = {
    "transformer": ("language-model", "[model.decoder]\nnum_heads = 4"),
    "lstm": ("language-model", '[model.decoder]\nfamily = "recurrent"'),
    "convolution": ("language-model", '[model.decoder]\nfamily = "convolutional"'),
    "masked transformer": ("masked-language-model", "[model.encoder]\nnum_heads = 4"),
}
_MODEL = """task = "{task}"
tokenizer = {{kind = "words", min_frequency = 1}}
data = {{train = {{files = "sentences"}}, valid_fraction = 0.05, checks.duplicate = "off"}}
[batch]
tokens = 1024
rows = {{kind = "lines", max_length = 24}}
[model]
embedding_dropout = 0.0
{stack}
num_layers = 2
model_dim = {dim}
dropout = 0.0
"""


class PairsParameters(Parameters):
    """The models, their size and training, and how many pairs are asked."""

    models: tuple[str, ...] = tuple(_MODELS)
    """What is trained: transformer, lstm, convolution, masked transformer."""
    model_dim: Positive = 64
    """The width of the models."""
    steps: Positive = 400
    """How long they are trained."""
    sentences: Positive = 8000
    """How many sentences they are trained on."""
    asked: Positive = 100
    """Pairs of each phenomenon, at most."""


class MinimalPairs(Experiment[PairsParameters]):
    """Accuracy by phenomenon and model."""

    name = "pairs"
    teaches = (
        "A model that only learned to predict words has learned rules of grammar, the near ones before the far ones."
    )
    parameters = PairsParameters
    smallest: ClassVar = {
        "models": ("transformer",),
        "model_dim": 32,
        "steps": 150,
        "sentences": 2000,
        "asked": 30,
    }
    trains = True

    def list_units(self, parameters: PairsParameters) -> Sequence[str]:
        """One for each model."""
        unknown = [name for name in parameters.models if name not in _MODELS]
        if unknown:
            raise DataError(f"models: there is no {unknown[0]}; there are {', '.join(_MODELS)}")
        return parameters.models

    def measure(self, parameters: PairsParameters, unit: str, seed: int, folder: Path) -> Found:
        """Train a model and ask it."""
        task, stack = _MODELS[unit]
        sentences = [spell(one) for one in draw_sentences(seed, parameters.sentences)]
        config = _MODEL.format(task=task, stack=stack, dim=parameters.model_dim)
        model = learn(folder, config, {"sentences": sentences}, seed=seed, steps=parameters.steps)
        pairs = {name: draw_pairs(name, seed, parameters.asked) for name in PHENOMENA}
        return {"accuracy": judge(model, pairs), "pairs": [len(one) for one in pairs.values()]}

    def report(self, parameters: PairsParameters, results: Results) -> Report:
        """A row for each phenomenon."""
        found = {unit: results.summarise_each(unit, "accuracy") for unit in parameters.models}
        counts = results.first(parameters.models[0])["pairs"]
        claims = []
        names = list(PHENOMENA)
        near, apart, far = (at for at, name in enumerate(names) if name.startswith("subject"))
        for unit, accuracy in found.items():
            said = f"a verb agrees with its subject across words of the other number as well as beside it ({unit})"
            holds = accuracy[far].mean > accuracy[near].mean - 0.1
            numbers = (
                f"beside it {accuracy[near].spell(2)}, apart {accuracy[apart].spell(2)}, far {accuracy[far].spell(2)}"
            )
            claims.append(Claim(said, holds, numbers))
        return show(names, counts, found, claims)


def inspect(models: Mapping[str, Model], path: Path | None, *, asked: int = 100, seed: int = 1) -> Report:
    """Ask somebody's models: about pairs of a file, or about those of the artificial English of this lab."""
    for name, model in models.items():
        if not model.config.task.endswith("language-model"):
            raise DataError(
                f"{name}: it was trained for {model.config.task} and cannot say how probable a sentence is by itself; "
                "minimal pairs need a language model of any kind"
            )
    pairs = {name: draw_pairs(name, seed, asked) for name in PHENOMENA} if path is None else read_pairs(path)
    found = {name: [Summary(share) for share in judge(model, pairs)] for name, model in models.items()}
    every = [pair for many in pairs.values() for pair in many]
    notes = [note for name, model in models.items() for note in note_alike(name, model, every)]
    return show(list(pairs), [len(one) for one in pairs.values()], found, notes=notes)


def judge(model: Model, pairs: Pairs) -> list[float]:
    """The share of pairs in which the right sentence is more probable, by phenomenon; equal ones count half."""
    shares = []
    for many in pairs.values():
        scores = [model.score([pair[side] for pair in many]) for side in (0, 1)]
        better = [a.log_probability - b.log_probability for a, b in zip(*scores, strict=True)]
        shares.append(sum((one > 0) + 0.5 * (one == 0) for one in better) / len(better))
    return shares


def read_pairs(path: Path) -> Pairs:
    """Pairs in BLiMP's form: JSON objects, one a line, with `sentence_good`, `sentence_bad` and, if given, `UID`."""
    found: dict[str, list[tuple[str, str]]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            pair = value["sentence_good"], value["sentence_bad"]
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}:{number}: expected a JSON object with sentence_good and sentence_bad") from None
        if not all(isinstance(side, str) and side.strip() for side in pair):
            raise DataError(f"{path}:{number}: sentence_good and sentence_bad must be texts")
        found.setdefault(str(value.get("UID", path.stem)), []).append(pair)
    if not found:
        raise DataError(f"{path}: there are no pairs in it")
    return found


def show(
    phenomena: Sequence[str],
    counts: Sequence[int],
    found: Mapping[str, Sequence[Summary]],
    claims: Sequence[Claim] = (),
    notes: Sequence[str] = (),
) -> Report:
    """A table and bars, for each phenomenon and model."""
    rows = [
        [name, str(count), *(accuracy[at].spell(2) for accuracy in found.values())]
        for at, (name, count) in enumerate(zip(phenomena, counts, strict=True))
    ]
    means = [summarise_means(accuracy) for accuracy in found.values()]
    rows.append(["mean", str(sum(counts)), *(f"{mean:.2f}" for mean in means)])
    bars = [(name, [one.mean for one in accuracy]) for name, accuracy in found.items()]
    short = [
        name.split(" (")[0].replace("subject and ", "").replace("determiner and ", "det. and ") for name in phenomena
    ]
    panel = Bars("right sentence more probable (chance .5)", short, Axis("share of pairs", low=0.0, high=1.0), bars)
    table = Table("Share of pairs in which the right sentence is more probable", ["phenomenon", "pairs", *found], rows)
    return Report([table], [panel], claims, "Bars for each phenomenon and model", columns=1, notes=notes)


def summarise_means(accuracy: Sequence[Summary]) -> float:
    """The mean over phenomena."""
    return sum(one.mean for one in accuracy) / len(accuracy)


EXPERIMENT = MinimalPairs()
