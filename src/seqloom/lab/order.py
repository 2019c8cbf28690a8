"""Which ways of telling positions apart still work on sequences longer than those of training.

Two questions, on random words among which stand one A and one B:

    first    which of the two came first?
    apart    do exactly k positions lie between one and the other, or not?

A model is trained on short sequences and asked about longer ones. Lecture notes say that raw indices grow too large,
that normalised ones differ with the length, and that sinusoids are bounded and so do for any length. Bounded is not
enough: what the weights make of positions that they were never trained on is measured here.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from seqloom.config.base import Positive
from seqloom.lab.chart import Axis, Lines, Series
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.lab.learning import learn
from seqloom.lab.summary import Summary
from seqloom.predict.model import Model

Question = Literal["first", "apart"]
_ENCODINGS = {
    "none": '"none"',
    "index": '"index"',
    "normalised": '"normalised"',
    "sinusoidal": '"sinusoidal"',
    "learned": '{kind = "learned", table = 512}',
    "rotary": '"rotary"',
    "alibi": '"alibi"',
}
_FILLERS = tuple(f"w{number}" for number in range(8))
_MODEL = """task = "classification"
tokenizer = {{kind = "words", min_frequency = 1}}
data.train.files = "lines.tsv"
data.valid_fraction = 0.02
data.checks = {{duplicate = "off", conflicting_label = "off"}}
[batch]
tokens = 2048
max_length = 512
[model]
embedding_dropout = 0.0
[model.encoder]
num_layers = {layers}
num_heads = 4
model_dim = {dim}
dropout = 0.0
positions = {positions}
"""


class OrderParameters(Parameters):
    """The questions, the lengths, and the size and training of the models."""

    encodings: tuple[Literal["none", "index", "normalised", "sinusoidal", "learned", "rotary", "alibi"], ...] = (
        "none",
        "index",
        "normalised",
        "sinusoidal",
        "learned",
        "rotary",
        "alibi",
    )
    """Ways of telling positions apart."""
    questions: tuple[Question, ...] = ("first", "apart")
    """What is asked."""
    apart: Positive = 3
    """How far apart the two words are, in the second question."""
    longest: Positive = 16
    """The longest sequence of training."""
    lengths: tuple[Positive, ...] = (16, 32, 64, 200)
    """The sequences that are asked about."""
    asked: Positive = 400
    """How many of each length."""
    layers: Positive = 2
    """Layers of the models."""
    model_dim: Positive = 32
    """Their width."""
    steps: Positive = 300
    """How long they are trained."""
    lines: Positive = 6000
    """How many sequences they are trained on."""


class Order(Experiment[OrderParameters]):
    """Accuracy over length, for each way of telling positions apart."""

    name = "order"
    teaches = (
        "A position encoding that can be computed for any length is not one that a model understands at any length: "
        "only what training made use of carries over."
    )
    parameters = OrderParameters
    smallest: ClassVar = {
        "encodings": ("normalised", "sinusoidal"),
        "questions": ("first",),
        "lengths": (16, 64),
        "asked": 100,
        "steps": 90,
        "lines": 2000,
    }
    trains = True

    def list_units(self, parameters: OrderParameters) -> Sequence[str]:
        """Each encoding with each question."""
        return [f"{question} {name}" for question in parameters.questions for name in parameters.encodings]

    def measure(self, parameters: OrderParameters, unit: str, seed: int, folder: Path) -> Found:
        """Train a model and ask it about sequences of each length."""
        question, encoding = unit.split()
        rng = random.Random(seed)
        lines = ["text\tlabel"]
        for _ in range(parameters.lines):
            length = rng.randint(parameters.apart + 3, parameters.longest)
            lines.append("\t".join(_draw(rng, question, length, parameters.apart)))
        config = _MODEL.format(layers=parameters.layers, dim=parameters.model_dim, positions=_ENCODINGS[encoding])
        model = learn(folder, config, {"lines.tsv": lines}, seed=seed, steps=parameters.steps)
        return {"accuracy": [_ask(model, question, length, parameters) for length in parameters.lengths]}

    def report(self, parameters: OrderParameters, results: Results) -> Report:
        """A table and a panel for each question."""
        titles = {"first": "Which came first?", "apart": f"Exactly {parameters.apart} apart?"}
        tables, panels = [], []
        for question in parameters.questions:
            found = {one: results.summarise_each(f"{question} {one}", "accuracy") for one in parameters.encodings}
            rows = [[name, *(one.spell(2) for one in summaries)] for name, summaries in found.items()]
            tables.append(Table(titles[question], ["words", *map(str, parameters.lengths)], rows))
            curves = [_curve(name, parameters.lengths, summaries) for name, summaries in found.items()]
            lengths = Axis("words in the sequence", log=True, ticks=tuple(map(float, parameters.lengths)))
            panels.append(Lines(titles[question], lengths, Axis("share of right answers", low=0.3, high=1.0), curves))
        picture = f"Curves of accuracy over length; training ended at {parameters.longest} words"
        return Report(tables, panels, self._claim(parameters, results), picture)

    def _claim(self, parameters: OrderParameters, results: Results) -> list[Claim]:
        claims = []
        known, longest = {*self.list_units(parameters)}, parameters.lengths[-1]

        def spell(unit: str) -> str:
            found = results.summarise_each(unit, "accuracy")
            return " / ".join(one.spell(2) for one in found)

        if "first none" in known:
            blind = results.summarise_each("first none", "accuracy")[0].mean < 0.65
            claims.append(Claim("without positions, a Transformer sees a set of words", blind, spell("first none")))
        for question in parameters.questions:
            unit = f"{question} sinusoidal"
            if unit in known:
                found = results.summarise_each(unit, "accuracy")
                holds = found[-1].mean > 0.9 * found[0].mean
                said = f"sinusoids work for sequences longer than those of training ({question})"
                claims.append(Claim(said, holds, f"at {_list(parameters.lengths)} words: {spell(unit)}"))
            unit = f"{question} normalised"
            if unit in known:
                found = results.summarise_each(unit, "accuracy")
                fails = found[-1].mean < 0.75
                said = f"normalised indices do not do for sequences of different lengths ({question})"
                claims.append(Claim(said, fails, f"at {_list(parameters.lengths)} words: {spell(unit)}"))
        if "first index" in known:
            found = results.summarise_each("first index", "accuracy")
            said = "raw indices grow too large for longer sequences (first)"
            claims.append(Claim(said, found[-1].mean < 0.75, f"{found[-1].spell(2)} right at {longest} words"))
        return claims


def _list(lengths: Sequence[int]) -> str:
    return " / ".join(map(str, lengths))


def _curve(name: str, lengths: Sequence[int], found: Sequence[Summary]) -> Series:
    points = [(float(length), one.mean) for length, one in zip(lengths, found, strict=True)]
    return Series(name, points, [one.ends for one in found] if found[0].count > 1 else ())


def _draw(rng: random.Random, question: str, length: int, apart: int) -> tuple[str, str]:
    """A sequence and the answer; half of the answers are each of two."""
    words = [rng.choice(_FILLERS) for _ in range(length)]
    if question == "first":
        one, two = rng.sample(range(length), 2)
        label = "a" if one < two else "b"
    else:
        label = rng.choice(("yes", "no"))
        while True:
            one, two = rng.sample(range(length), 2)
            if (abs(one - two) == apart) == (label == "yes"):
                break
    words[one], words[two] = "A", "B"
    return " ".join(words), label


def _ask(model: Model, question: str, length: int, parameters: OrderParameters) -> float:
    rng = random.Random(length)
    drawn = [_draw(rng, question, length, parameters.apart) for _ in range(parameters.asked)]
    answers = model.classify([text for text, _ in drawn])
    return sum(one.label == label for one, (_, label) in zip(answers, drawn, strict=True)) / len(drawn)  # type: ignore[union-attr]


EXPERIMENT = Order()
