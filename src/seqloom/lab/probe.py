"""Which layers know the parts of speech: a linear classifier on the states of each layer, and its control.

probe          P(tag given h) = softmax(W h + b), trained on the states of one layer, which do not change
control        the same on random tags, one for each word: what a classifier can learn by heart (Hewitt & Liang 2019)
selectivity    the probe's accuracy minus the control's: what the states say, and not the classifier
ambiguous      the probe's accuracy on words that have several tags: only their context can tell
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.config.base import Positive
from seqloom.config.data import TaggedData
from seqloom.data.corpus import open_corpus
from seqloom.errors import DataError
from seqloom.lab.chart import Axis, Lines, Series
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.lab.grammar import draw_sentences, spell
from seqloom.lab.learning import learn
from seqloom.lab.own import note_unknown
from seqloom.lab.summary import Summary
from seqloom.predict.model import Model

Sentence = Sequence[tuple[str, str]]
"""Words with their tags."""
_KEYS = ("accuracy", "control", "selectivity", "ambiguous")
_DECAY, _STEPS = 1e-3, 60
_MODEL = """task = "masked-language-model"
tokenizer = {{kind = "words", min_frequency = 1}}
data = {{train = {{files = "sentences"}}, valid_fraction = 0.05, checks.duplicate = "off"}}
[batch]
tokens = 1024
rows = {{kind = "lines", max_length = 24}}
[model]
embedding_dropout = 0.0
[model.encoder]
num_layers = {layers}
num_heads = 4
model_dim = {dim}
dropout = 0.0
"""


class ProbeParameters(Parameters):
    """The size and training of the model, and how much it is probed with."""

    layers: Positive = 4
    """Layers of the model."""
    model_dim: Positive = 64
    """Its width."""
    steps: Positive = 600
    """How long it is trained."""
    sentences: Positive = 8000
    """How many sentences it is trained on, without their tags."""
    probed: Positive = 600
    """Tagged sentences: half of them train the probes, the other half tests them."""


class Probe(Experiment[ProbeParameters]):
    """Accuracy of a probe and its control, layer by layer."""

    name = "probe"
    teaches = (
        "A model that was never shown a tag knows them all the same; the word alone says most, and the first layers of "
        "context say the rest."
    )
    parameters = ProbeParameters
    smallest: ClassVar = {"layers": 2, "model_dim": 48, "steps": 150, "sentences": 2000, "probed": 150}

    def list_units(self, parameters: ProbeParameters) -> Sequence[str]:
        """One model."""
        return ["masked transformer"]

    def measure(self, parameters: ProbeParameters, unit: str, seed: int, folder: Path) -> Found:
        """Train it on plain sentences, and probe its layers with tagged ones."""
        sentences = [spell(one) for one in draw_sentences(seed, parameters.sentences)]
        config = _MODEL.format(layers=parameters.layers, dim=parameters.model_dim)
        model = learn(folder, config, {"sentences": sentences}, seed=seed, steps=parameters.steps)
        return probe(model, draw_sentences(seed + 1, parameters.probed, held_out=True), seed)

    def report(self, parameters: ProbeParameters, results: Results) -> Report:
        """A row for each number, a column for each layer."""
        return show({unit: {k: results.summarise_each(unit, k) for k in _KEYS} for unit in self.list_units(parameters)})


def inspect(
    model: Model, path: Path, *, column: str | None = None, count: int = 1000, seed: int = 1, name: str = "model"
) -> Report:
    """Probe somebody's model with a file of tagged sentences, CoNLL-U or columns of words and tags."""
    sentences = read_tagged(path, column, count)
    numbers = probe(model, sentences, seed)
    notes = [*note_unknown(name, model, [" ".join(word for word, _ in sentence) for sentence in sentences])]
    if not numbers["ambiguous"]:
        notes.append("No word that was tested has several tags, so nothing can be said about ambiguous ones.")
    return show({name: {key: [Summary(one) for one in numbers[key]] for key in _KEYS}}, notes)


def read_tagged(path: Path, column: str | None, count: int) -> list[Sentence]:
    """The first tagged sentences of a file; CoNLL-U by its name, with the tags of a column (upos unless given)."""
    plain = path.name.removesuffix(".gz").removesuffix(".xz")
    section: dict[str, Any] = {"format": "conllu" if plain.endswith(".conllu") else "conll", "files": str(path)}
    if column is not None:
        section["tags"] = column
    data = TaggedData.model_validate({"train": section})
    corpus = open_corpus(data, data.train[0], Path())
    found: list[Sentence] = []
    for example in islice(corpus, count):
        words, tags = example.values["words"], example.values["tags"]
        found.append(list(zip(words, tags, strict=True)))
    if not found:
        raise DataError(f"{path}: there are no tagged sentences in it")
    return found


def show(found: dict[str, dict[str, list[Summary]]], notes: Sequence[str] = ()) -> Report:
    """A table and a panel for each model."""
    tables, panels, claims = [], [], []
    for name, numbers in found.items():
        layers = range(len(numbers["accuracy"]))
        head = ["", "input", *(f"layer {layer}" for layer in layers[1:])]
        known = [key for key in _KEYS if numbers[key]]
        tables.append(Table(name, head, [[key, *(one.spell(2) for one in numbers[key])] for key in known]))
        curves = [Series(key, [(float(layer), one.mean) for layer, one in enumerate(numbers[key])]) for key in known]
        axis = Axis("layer", ticks=tuple(map(float, layers)))
        lowest = min(0.0, *(one.mean for one in numbers["selectivity"]))
        panels.append(Lines(name, axis, Axis("share", low=lowest, high=1.0), curves))
        accuracy, ambiguous = numbers["accuracy"], numbers["ambiguous"]
        best = max(layers, key=lambda layer: accuracy[layer].mean)
        if ambiguous:
            claims.append(
                Claim(
                    f"the meaning of an ambiguous word is in its context, not in its vector ({name})",
                    max(one.mean for one in ambiguous[1:]) > ambiguous[0].mean + 0.05,
                    f"ambiguous words right: {ambiguous[0].spell(2)} at the input, "
                    f"{max(ambiguous[1:], key=lambda one: one.mean).spell(2)} at the best layer",
                )
            )
        claims.append(
            Claim(
                f"the last layer knows most ({name})",
                accuracy[-1].mean > accuracy[best].mean - 0.005,
                f"layer {best} is the best with {accuracy[best]}; the last has {accuracy[-1]}",
            )
        )
    picture = "Curves over layers: a probe for parts of speech, its control, and their difference"
    return Report(tables, panels, claims, picture, notes=notes)


def probe(model: Model, sentences: Sequence[Sentence], seed: int) -> Found:
    """Probe every layer of a model; the first half of the sentences trains the probes, the second tests them."""
    half = len(sentences) // 2
    if half < 1:
        raise DataError("a probe needs at least two tagged sentences")
    train, test = (_read(model, part) for part in (sentences[:half], sentences[half:]))
    tags = sorted({tag for sentence in sentences for _, tag in sentence})
    numbers = {tag: number for number, tag in enumerate(tags)}
    rng = random.Random(seed)
    words = [word for sentence in sentences for word, _ in sentence]
    drawn = [tag for sentence in sentences for _, tag in sentence]
    random_tags = {word: numbers[rng.choice(drawn)] for word in dict.fromkeys(words)}
    seen = defaultdict(set)
    for sentence in sentences:
        for word, tag in sentence:
            seen[word].add(tag)
    real = [torch.tensor([numbers[tag] for _, tag in part.tokens]) for part in (train, test)]
    control = [torch.tensor([random_tags[word] for word, _ in part.tokens]) for part in (train, test)]
    open_words = torch.tensor([len(seen[word]) > 1 for word, _ in test.tokens])
    found: Found = {key: [] for key in _KEYS}
    for layer in range(len(train.vectors)):
        mean, spread = train.vectors[layer].mean(0), train.vectors[layer].std(0).clamp(min=1e-6)
        ours, theirs = ((part.vectors[layer] - mean) / spread for part in (train, test))
        right = _classify(ours, real[0], theirs, len(tags)) == real[1]
        by_heart = _classify(ours, control[0], theirs, len(tags)) == control[1]
        accuracy, baseline = float(right.float().mean()), float(by_heart.float().mean())
        found["accuracy"].append(accuracy)
        found["control"].append(baseline)
        found["selectivity"].append(accuracy - baseline)
        if open_words.any():
            found["ambiguous"].append(float(right[open_words].float().mean()))
    return found


class _Words:
    """The words of some sentences with their tags, and their vectors in each layer."""

    def __init__(self, tokens: list[tuple[str, str]], vectors: Float[Tensor, "L N D"]) -> None:
        self.tokens, self.vectors = tokens, vectors


def _read(model: Model, sentences: Sequence[Sentence]) -> _Words:
    """A word of several tokens has the mean of their vectors."""
    texts = [" ".join(word for word, _ in sentence) for sentence in sentences]
    tokens, vectors = [], []
    for sentence, read in zip(sentences, model.embed(texts, level="token", layer="all"), strict=True):
        states = torch.from_numpy(read.vectors)  # (L, T, D)
        start = 0
        for word, tag in sentence:
            end = start + len(word)
            own = [at for at, (low, high) in enumerate(read.offsets) if low < end and start < high]
            if own:
                tokens.append((word, tag))
                vectors.append(states[:, own].mean(1))
            start = end + 1
    return _Words(tokens, torch.stack(vectors, dim=1))


def _classify(
    x: Float[Tensor, "N D"], y: Int[Tensor, "N"], asked: Float[Tensor, "M D"], classes: int
) -> Int[Tensor, "M"]:
    """The answers of a linear classifier that is trained on x and y: multinomial logistic regression."""
    weight = torch.zeros(classes, x.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(x, weight, bias), y) + _DECAY * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(step)
    return F.linear(asked, weight, bias).argmax(-1)


EXPERIMENT = Probe()
