"""What a decoder loses that sees its source as one vector, and what attention gives back.

The task is to write letters in reverse. A recurrent encoder and decoder learn it in three ways: the decoder starts from
the encoder's summary (Sutskever et al. 2014); the summary is given at every step (Cho et al. 2014); or the decoder
attends to all states of the encoder (Bahdanau et al. 2015). One vector has room for so many letters; attention has no
such bound, and its weights show what was learned: the antidiagonal.

Somebody's own translators are asked for BLEU by the length of the source, as Bahdanau et al. (2015, figure 2) show it.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from seqloom.config.base import Positive
from seqloom.data.files import Advance
from seqloom.errors import DataError
from seqloom.lab.chart import Axis, Grid, Lines, Series
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.lab.learning import learn
from seqloom.lab.summary import Summary
from seqloom.metrics.resampling import Estimate, estimate
from seqloom.predict.evaluate import Wanted, measure, open_records, read_records
from seqloom.predict.model import Model
from seqloom.predict.predictor import Predictor

Context = Literal["attention", "every-step", "initial-state"]
_NAMES = {
    "attention": "attention",
    "every-step": "one vector, at every step",
    "initial-state": "one vector, at the start",
}
_LETTERS = "abcdefghijklmnopqrst"
_GROUPS = 5
"""Into how many groups of like length the sources of own data are sorted."""
_MODEL = """task = "translation"
tokenizer = "characters"
data = {{train = {{source = "lines.source", target = "lines.target"}}, valid_fraction = 0.01, checks.duplicate = "off"}}
[batch]
tokens = {tokens}
[model]
embedding_dropout = 0.0
[model.encoder]
family = "recurrent"
cell = "gru"
num_layers = 1
model_dim = {dim}
dropout = 0.0
[model.decoder]
context = "{context}"
"""


class BottleneckParameters(Parameters):
    """The contexts, the lengths, and the size and training of the models."""

    contexts: tuple[Context, ...] = ("attention", "every-step", "initial-state")
    """How the decoder knows the source."""
    lengths: tuple[Positive, ...] = (4, 8, 12, 16, 24)
    """Letters of the lines that are asked."""
    longest: Positive = 16
    """Letters of the longest line of training."""
    asked: Positive = 200
    """How many lines of each length are asked."""
    model_dim: Positive = 64
    """The width of the models."""
    steps: Positive = 500
    """How long they are trained."""
    lines: Positive = 12000
    """How many lines they are trained on."""
    tokens: Positive = 4096
    """Letters in a batch of training, sources and targets together."""
    letters: Positive = 20
    """How many letters there are."""


class Bottleneck(Experiment[BottleneckParameters]):
    """Exact answers over length, with attention and without."""

    name = "bottleneck"
    teaches = (
        "One vector has room for a few letters, whatever the line; attention looks each letter up where it stands."
    )
    parameters = BottleneckParameters
    smallest: ClassVar = {
        "contexts": ("attention", "initial-state"),
        "lengths": (2, 5),
        "longest": 5,
        "asked": 40,
        "steps": 100,
        "lines": 2000,
        "letters": 8,
        "tokens": 1024,
    }
    trains = True

    def list_units(self, parameters: BottleneckParameters) -> Sequence[str]:
        """Each way to know the source."""
        return parameters.contexts

    def measure(self, parameters: BottleneckParameters, unit: str, seed: int, folder: Path) -> Found:
        """Train a model, ask it about lines of each length, and read its attention to one line."""
        rng = random.Random(seed)
        lines = [_draw(rng, rng.randint(2, parameters.longest), parameters) for _ in range(parameters.lines)]
        config = _MODEL.format(dim=parameters.model_dim, context=unit, tokens=parameters.tokens)
        sides = {"lines.source": lines, "lines.target": (line[::-1] for line in lines)}
        model = learn(folder, config, sides, seed=seed, steps=parameters.steps)
        asked = [_ask(model, length, parameters) for length in parameters.lengths]
        found: Found = {"exact": [exact for exact, _ in asked], "letters": [letters for _, letters in asked]}
        if unit == "attention":
            line = _draw(random.Random(0), min(10, parameters.longest), parameters)
            alignment = model.align(line, line[::-1])
            found |= {"source": list(alignment.source), "target": list(alignment.target)}
            found["weights"] = [[round(float(weight), 4) for weight in row] for row in alignment.weights]
        return found

    def report(self, parameters: BottleneckParameters, results: Results) -> Report:
        """Shares of lines and of letters over length, and the attention matrix."""
        names = {unit: _NAMES[unit] for unit in parameters.contexts}
        exact = {unit: results.summarise_each(unit, "exact") for unit in names}
        letters = {unit: results.summarise_each(unit, "letters") for unit in names}
        head = ["letters", *map(str, parameters.lengths)]
        tables = [
            Table(title, head, [[names[unit], *(one.spell(2) for one in found[unit])] for unit in names])
            for title, found in (("Lines that are exactly right", exact), ("Letters that are right", letters))
        ]
        size, share = (
            Axis("letters in the line", ticks=tuple(map(float, parameters.lengths))),
            Axis("share", low=0.0, high=1.0),
        )
        panels: list[Lines | Grid] = [
            Lines(title, size, share, [_curve(names[unit], parameters.lengths, found[unit]) for unit in names])
            for title, found in (("lines that are exactly right", exact), ("letters that are right", letters))
        ]
        claims = []
        if "attention" in names:
            found = results.first("attention")
            panels.append(
                Grid("what attention attends to", found["target"], found["source"], found["weights"], "written", "read")
            )
            diagonal = _measure_antidiagonal(found["weights"])
            claims.append(
                Claim(
                    "attention looks each letter up where it stands",
                    diagonal > 0.5,
                    f"{diagonal:.2f} on the antidiagonal",
                )
            )
        long = max((at for at, n in enumerate(parameters.lengths) if n <= parameters.longest), default=0)
        for unit in [one for one in names if one != "attention" and "attention" in names]:
            ours, theirs = exact[unit][long], exact["attention"][long]
            said = f"a whole line does not fit into {names[unit]}"
            numbers = (
                f"{parameters.lengths[long]} letters: {ours.spell(2)} exactly right, with attention {theirs.spell(2)}"
            )
            claims.append(Claim(said, ours.mean < 0.5 * theirs.mean, numbers))
        if parameters.lengths[-1] > parameters.longest and "attention" in names:
            last = exact["attention"][-1]
            said = f"attention works for lines longer than those of training ({parameters.longest} letters)"
            claims.append(
                Claim(said, last.mean > 0.5, f"{parameters.lengths[-1]} letters: {last.spell(2)} exactly right")
            )
        picture = "Curves over the length of a line: with attention most are right, with one vector only short ones"
        return Report(tables, panels, claims, picture, columns=3)


def inspect(translators: Mapping[str, Predictor], files: Sequence[Path], advance: Advance) -> Report:
    """BLEU of somebody's translators by the length of the source, on files or on the first one's validation data."""
    for name, one in translators.items():
        if one.config.task != "translation":
            raise DataError(f"{name}: it was trained for {one.config.task}; BLEU by length needs a translation model")
    names = list(translators)
    corpora = open_records(translators[names[0]], files, "valid")
    records = read_records(corpora)
    lengths = [len(str(record.values["source"]).split()) for record in records]
    groups = _group(lengths)
    notes = [
        f"{len(records):,} sentences of {records[0].path}, in groups of like size. Length is the number of words, "
        "separated by white space; intervals are of sentences (95%, bootstrap)."
    ]
    if min(lengths) < 4:
        notes.append("BLEU counts up to four words in a row, so it says little of sources that are shorter than that.")
    if len(groups) == 1:
        notes.append("All sources are equally long in such words, so there is nothing to compare.")
    found: dict[str, list[Estimate]] = {}
    for name, one in translators.items():
        performance = measure(one, corpora, records, Wanted(("bleu",)), advance)
        (bleu,) = performance.measures
        parts = [[at for at, length in enumerate(lengths) if low <= length <= high] for low, high in groups]
        found[name] = [estimate(replace(bleu, rows=bleu.rows[part])) for part in parts]
        notes += [f"{name}: {note}" for note in performance.details.notes]
        notes.append(f"{name}: {estimate(bleu).value:.2f} on all of them ({bleu.signature}).")
    spelled = [str(low) if low == high else f"{low} to {high}" for low, high in groups]
    sizes = [sum(low <= length <= high for length in lengths) for low, high in groups]
    rows = [
        [
            group,
            f"{size:,}",
            *(f"{many[at].value:.1f} ({many[at].low:.1f} to {many[at].high:.1f})" for many in found.values()),
        ]
        for at, (group, size) in enumerate(zip(spelled, sizes, strict=True))
    ]
    table = Table("BLEU by the length of the source", ["words", "sentences", *names], rows)
    middles = [
        sum(length for length in lengths if low <= length <= high) / size
        for (low, high), size in zip(groups, sizes, strict=True)
    ]
    curves = [
        Series(
            name,
            [(at, one.value) for at, one in zip(middles, many, strict=True)],
            [(one.low, one.high) for one in many],
        )
        for name, many in found.items()
    ]
    words = Axis("words in the source", low=min(lengths) - 1.0, high=max(lengths) + 1.0)
    panel = Lines("BLEU by the length of the source", words, Axis("BLEU", low=0.0), curves)
    claims = [
        Claim(
            f"long sources are translated worse than short ones ({name})",
            many[-1].high < many[0].low,
            f"BLEU {rows[0][2 + at]} for {spelled[0]} words, {rows[-1][2 + at]} for {spelled[-1]}",
        )
        for at, (name, many) in enumerate(found.items())
        if len(groups) > 1
    ]
    return Report([table], [panel], claims, "Curves: BLEU over the length of the source", columns=1, notes=notes)


def _group(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """The least and the greatest length of each group; groups have about as many sources each."""
    groups: list[tuple[int, int]] = []
    seen = 0
    low: int | None = None
    for length, count in sorted(Counter(lengths).items()):
        low, seen = length if low is None else low, seen + count
        if seen >= len(lengths) * (len(groups) + 1) / _GROUPS:
            groups.append((low, length))
            low = None
    return groups


def _curve(name: str, lengths: Sequence[int], found: Sequence[Summary]) -> Series:
    points = [(float(length), one.mean) for length, one in zip(lengths, found, strict=True)]
    return Series(name, points, [one.ends for one in found] if found[0].count > 1 else ())


def _draw(rng: random.Random, length: int, parameters: BottleneckParameters) -> str:
    return "".join(rng.choice(_LETTERS[: parameters.letters]) for _ in range(length))


def _ask(model: Model, length: int, parameters: BottleneckParameters) -> tuple[float, float]:
    """The share of lines that are exactly right, and of letters that stand where they should."""
    rng = random.Random(length)
    lines = [_draw(rng, length, parameters) for _ in range(parameters.asked)]
    answers = [one.text for one in model.translate(lines, align=False, max_length=2 * length + 4)]
    exact = sum(answer == line[::-1] for answer, line in zip(answers, lines, strict=True)) / len(lines)
    right = [
        sum(a == b for a, b in zip(answer, line[::-1], strict=False)) / length
        for answer, line in zip(answers, lines, strict=True)
    ]
    return exact, sum(right) / len(right)


def _measure_antidiagonal(weights: Sequence[Sequence[float]]) -> float:
    """The mean weight on the letter that is written, at most one place beside it."""
    size = len(weights[0])
    rows = [row for row in weights if len(row) == size][:size]
    found = []
    for number, row in enumerate(rows):
        place = size - 1 - number
        found.append(sum(row[max(0, place - 1) : place + 2]))
    return sum(found) / len(found)


EXPERIMENT = Bottleneck()
