"""Whether the vector of a word moves towards the words around it, layer by layer.

`apple` is a company beside a phone and a fruit beside an orange. A static vector is the same in both; a contextual one
should come nearer to the words of its own sentence, and the two should move apart. Cosines, after each layer:

    around it        with the words of the same sentence that go with it: phone, orange
    elsewhere        with such words of the other meaning's sentences. This is the base line: vectors of deeper layers
                     are more alike in general, whatever the words are (Ethayarajh 2019)
    same meaning     with words that could stand in its place, in sentences of their own: another company, another fruit
    other meaning    with words that could stand in its place in its other meaning
    itself           with the same word in its other meaning
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seqloom.config.base import Positive
from seqloom.errors import DataError
from seqloom.lab.chart import Axis, Lines, Series
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.lab.grammar import COMPANIES, DEVICES, FRUITS, draw_sentences, spell
from seqloom.lab.learning import learn
from seqloom.lab.own import note_unknown
from seqloom.lab.summary import Summary
from seqloom.predict.model import Model

_LINES = ("around it", "elsewhere", "itself")
_KINDS = ("same meaning", "other meaning")
_MODELS = {
    "transformer": ("masked-language-model", "num_layers = {layers}\nmodel_dim = {dim}\nnum_heads = 4\ndropout = 0.0"),
    "lstm": (
        "bidirectional-language-model",
        'family = "recurrent"\nnum_layers = {layers}\nmodel_dim = {dim}\ndropout = 0.0',
    ),
}
_MODEL = """task = "{task}"
tokenizer = {{kind = "words", min_frequency = 1}}
data = {{train = {{files = "sentences"}}, valid_fraction = 0.05, checks.duplicate = "off"}}
[batch]
tokens = 1024
rows = {{kind = "lines", max_length = 24}}
[model]
embedding_dropout = 0.0
[model.encoder]
{encoder}
"""
_NAMES = {
    "around it": "the words around it",
    "elsewhere": "words elsewhere",
    "itself": "itself",
    "same meaning": "words of the same meaning",
    "other meaning": "words of the other meaning",
}
Vectors = NDArray[np.float64]


class ContextParameters(Parameters):
    """The size and training of the models."""

    models: tuple[Literal["transformer", "lstm"], ...] = ("transformer", "lstm")
    """A masked Transformer, and a language model of LSTMs in both directions."""
    layers: Positive = 3
    """Layers of the models."""
    model_dim: Positive = 64
    """Their width."""
    steps: Positive = 500
    """How long they are trained."""
    sentences: Positive = 8000
    """How many sentences they are trained on."""
    asked: Positive = 30
    """Sentences of each meaning that are compared, none of them seen in training."""


class Context(Experiment[ContextParameters]):
    """Cosines of a word to its neighbours and to itself."""

    name = "context"
    teaches = (
        "A contextual vector is one word in one sentence: with each layer it comes nearer to the words that could "
        "stand in its place, and the same word in another meaning falls away."
    )
    parameters = ContextParameters
    smallest: ClassVar = {
        "models": ("transformer",),
        "layers": 2,
        "model_dim": 32,
        "steps": 150,
        "sentences": 2000,
        "asked": 8,
    }
    trains = True

    def list_units(self, parameters: ContextParameters) -> Sequence[str]:
        """Two families."""
        return parameters.models

    def measure(self, parameters: ContextParameters, unit: str, seed: int, folder: Path) -> Found:
        """Train a model, and compare apples in sentences about devices and about fruits."""
        task, encoder = _MODELS[unit]
        sentences = [spell(one) for one in draw_sentences(seed, parameters.sentences)]
        sizes = {"layers": parameters.layers, "dim": parameters.model_dim}
        config = _MODEL.format(task=task, encoder=encoder.format(**sizes))
        model = learn(folder, config, {"sentences": sentences}, seed=seed, steps=parameters.steps)
        apples = _draw_apples(seed, parameters.asked)
        return compare(model, "apple", apples, {*DEVICES, *FRUITS}) | _compare_kinds(model, "apple", apples)

    def report(self, parameters: ContextParameters, results: Results) -> Report:
        """A table and a panel for each model."""
        found: dict[str, dict[str, list[Summary]]] = {
            unit: {key: results.summarise_each(unit, key) for key in (*_LINES, *_KINDS)} for unit in parameters.models
        }
        claims = [claim for unit, lines in found.items() for claim in _claim(unit, lines)]
        claims.append(
            Claim(
                "a static vector is the same in every sentence",
                all(lines["itself"][0].mean > 0.999 for lines in found.values()),
                f"cosine {min(lines['itself'][0].mean for lines in found.values()):.3f} before any layer",
            )
        )
        return show("apple", found, claims)


def inspect(models: Mapping[str, Model], word: str, texts: Sequence[str], partners: Sequence[str] = ()) -> Report:
    """A word in texts, each with a meaning of its own, in somebody's models; `partners` also get a line each."""
    if len(texts) < 2:
        raise DataError("give at least two texts that contain the word, each with another meaning of it")
    found = {}
    for name, model in models.items():
        cosines = compare(model, word, [[text] for text in texts]) | _compare_each(model, word, texts, partners)
        found[name] = {key: [Summary(value) for value in cosines[key]] for key in (*partners, *_LINES)}
    claims = []
    for name, lines in found.items():
        around, elsewhere, alike = (lines[key] for key in _LINES)
        claims += [_claim_around(name, around, elsewhere), _claim_apart(name, alike)]
    notes = [note for name, model in models.items() for note in note_unknown(name, model, texts)]
    return show(word, found, claims, notes)


def show(
    word: str,
    found: Mapping[str, Mapping[str, Sequence[Summary]]],
    claims: Sequence[Claim],
    notes: Sequence[str] = (),
) -> Report:
    """Curves over layers, for each model."""
    tables, panels = [], []
    for name, lines in found.items():
        layers = range(len(lines["itself"]))
        head = ["cosine", *("input" if not layer else f"layer {layer}" for layer in layers)]
        rows = [[f"{word} to {_NAMES.get(key, key)}", *(one.spell(2) for one in ones)] for key, ones in lines.items()]
        tables.append(Table(name, head, rows))
        curves = [Series(key, [(float(at), one.mean) for at, one in enumerate(ones)]) for key, ones in lines.items()]
        ticks = tuple(map(float, layers))
        panels.append(Lines(f"{word}: {name}", Axis("layer", ticks=ticks), Axis("cosine", high=1.0), curves))
    picture = f"Curves over layers: how near “{word}” is to the words around it, to words elsewhere, and to itself"
    return Report(tables, panels, claims, picture, notes=notes)


def _claim(unit: str, lines: Mapping[str, Sequence[Summary]]) -> list[Claim]:
    around, elsewhere, alike = (lines[key] for key in _LINES)
    kind = [same.mean - other.mean for same, other in zip(*(lines[key] for key in _KINDS), strict=True)]
    return [
        _claim_around(unit, around, elsewhere),
        Claim(
            f"a word moves closer to words that mean the same here ({unit})",
            kind[-1] > kind[0] + 0.05,
            f"cosine to those, above that to words of the other meaning: {kind[0]:.2f} at the input, "
            f"{kind[-1]:.2f} at the end",
        ),
        _claim_apart(unit, alike),
    ]


def _claim_around(unit: str, around: Sequence[Summary], elsewhere: Sequence[Summary]) -> Claim:
    return Claim(
        f"a word moves closer to the words around it ({unit})",
        around[-1].mean - elsewhere[-1].mean > 0.05,
        f"cosine {around[0].spell(2)} at the input, {around[-1].spell(2)} at the end; to words elsewhere "
        f"{elsewhere[0].spell(2)} and {elsewhere[-1].spell(2)}",
    )


def _claim_apart(unit: str, alike: Sequence[Summary]) -> Claim:
    return Claim(
        f"the same word in two meanings moves apart ({unit})",
        alike[-1].mean < alike[0].mean - 0.05,
        f"cosine {alike[0].spell(2)} at the input, {alike[-1].spell(2)} at the end",
    )


def _compare_each(model: Model, word: str, texts: Sequence[str], partners: Sequence[str]) -> Found:
    """The cosines to single words of the same text."""
    found: Found = {}
    for partner in partners:
        rows = []
        for text in texts:
            own, around = _read(model, word, text, (partner.lower(),))
            rows += [[_cosine(a, b) for a, b in zip(own, one, strict=True)] for one in around]
        if not rows:
            raise DataError(f"the word “{partner}” does not stand beside “{word}” in any of the texts")
        found[partner] = [float(np.mean(row)) for row in zip(*rows, strict=True)]
    return found


def _compare_kinds(model: Model, word: str, groups: Sequence[Sequence[str]]) -> Found:
    """The cosines to words that could stand in its place, in either meaning: the same sentences with those words."""
    kinds = ([one for one in COMPANIES if one != word], [one for one in FRUITS if one != word])
    cosines: Found = {}
    for own, group in enumerate(groups):
        for text in group:
            ours, _ = _read(model, word, text, ())
            for other, replacements in enumerate(kinds):
                key = _KINDS[own != other]
                texts = groups[other][: len(replacements)]
                for replacement, theirs in zip(replacements, texts, strict=False):
                    vectors, _ = _read(model, replacement, theirs.replace(word, replacement), ())
                    rows = cosines.setdefault(key, [[] for _ in ours])
                    for layer, row in enumerate(rows):
                        row.append(_cosine(ours[layer], vectors[layer]))
    return {key: [float(np.mean(row)) for row in rows] for key, rows in cosines.items()}


def _draw_apples(seed: int, count: int) -> list[list[str]]:
    """Sentences in which apple is a company, and sentences in which it is a fruit."""
    groups: list[list[str]] = [[], []]
    for sentence in draw_sentences(seed + 1000, 20 * count * 10, held_out=True):
        words = [word for word, _ in sentence]
        if "apple" not in words:
            continue
        about_devices = bool({*DEVICES} & {*words})
        others = {*words} & ({*DEVICES} if about_devices else {*FRUITS} - {"apple"})
        group = groups[0 if about_devices else 1]
        if others and len(group) < count and spell(sentence) not in group:
            group.append(spell(sentence))
    return groups


def compare(model: Model, word: str, groups: Sequence[Sequence[str]], partners: Collection[str] = ()) -> Found:
    """The three cosines after each layer.

    A group is sentences with one meaning of the word; `partners` are the words that go with it, by default all others.
    """
    found = [[_read(model, word, text, partners) for text in group] for group in groups]
    layers = len(found[0][0][0])
    cosines: dict[str, list[list[float]]] = {key: [[] for _ in range(layers)] for key in _LINES}
    for at, group in enumerate(found):
        others = [one for other, many in enumerate(found) if other != at for one in many]
        for own, around in group:
            for layer in range(layers):
                cosines["around it"][layer] += [_cosine(own[layer], one[layer]) for one in around]
                for same, elsewhere in others:
                    cosines["itself"][layer].append(_cosine(own[layer], same[layer]))
                    cosines["elsewhere"][layer] += [_cosine(own[layer], one[layer]) for one in elsewhere]
    return {key: [float(np.mean(one)) for one in rows] for key, rows in cosines.items()}


def _read(model: Model, word: str, text: str, partners: Collection[str]) -> tuple[Vectors, list[Vectors]]:
    """The vectors of a word after each layer, and those of the words that go with it."""
    read = model.embed(text, level="token", layer="all")
    places: dict[str, list[int]] = {}
    start = 0
    for one in text.split():
        begin = text.index(one, start)
        start = begin + len(one)
        name = one.strip(".,;:!?\"'()").lower()
        places.setdefault(name, []).extend(
            at for at, (low, high) in enumerate(read.offsets) if low < start and begin < high
        )
    if not places.get(word.lower()):
        raise DataError(f"the word “{word}” does not stand in “{text}”; give texts that contain it")
    vectors = {name: read.vectors[:, at].mean(1).astype(np.float64) for name, at in places.items() if at and name}
    own = vectors.pop(word.lower())
    around = [vector for name, vector in vectors.items() if not partners or name in partners]
    return own, around


def _cosine(one: Vectors, other: Vectors) -> float:
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(one @ other) / max(lengths, 1e-30)


EXPERIMENT = Context()
