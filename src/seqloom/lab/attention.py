"""One attention head, number by number: products, their scale, the softmax, and the weighted values.

The numbers are those that lecture notes use for this. Where notes round, or err, the exact value stands beside theirs:

    softmax((112, 96, 16, 8) / √64)             .881 .119 .000 .000        notes print .87 .12 .01 0
    softmax((92, 124, 22, 8) / √64)             .018 .982 .000 .000        notes print .08 .91 .01 0
    softmax(2.0, 2.4, −10, 1.8, −12.5)          .302 .451 .000 .247 .000   a soft dictionary, not scaled
    softmax((112, 96, 16, 8) / 64)              .455 .354 .101 .090        "rescale by d" is not the same as by √d
    a query that is key 4                       finds key 4 only if no key is longer
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.errors import ConfigError, DataError
from seqloom.lab.chart import Axis, Bars
from seqloom.lab.experiment import Claim, Experiment, Found, Parameters, Report, Results, Table
from seqloom.nn.attention import Dot, ScaledDot, attention_weights
from seqloom.predict.model import Model


class AttentionParameters(Parameters):
    """There is nothing to change: the numbers are given."""


class _Example(NamedTuple):
    title: str
    products: tuple[float, ...]
    dim: int
    """The width of queries and keys."""
    printed: tuple[float, ...] = ()
    """The weights that notes print."""


_EXAMPLES = {
    "first": _Example("The first word attends", (112.0, 96.0, 16.0, 8.0), 64, (0.87, 0.12, 0.01, 0.0)),
    "second": _Example("The second word attends", (92.0, 124.0, 22.0, 8.0), 64, (0.08, 0.91, 0.01, 0.0)),
    "dictionary": _Example("A soft dictionary, not scaled", (2.0, 2.4, -10.0, 1.8, -12.5), 32, (0.3, 0.45, 0, 0.25, 0)),
}
_LENGTH = 4.0  # of the keys in the last example


class Attention(Experiment[AttentionParameters]):
    """Products, scale, softmax, weighted values."""

    name = "attention"
    teaches = (
        "A head multiplies its query with every key, divides by √d, and takes the mean of the values, "
        "weighted by the softmax of that."
    )
    parameters = AttentionParameters

    def list_units(self, parameters: AttentionParameters) -> Sequence[str]:
        """All numbers at once."""
        return ["numbers"]

    def measure(self, parameters: AttentionParameters, unit: str, seed: int, folder: Path) -> Found:
        """The weights, by the same functions that models use."""
        found: Found = {name: self._weigh(example, name != "dictionary") for name, example in _EXAMPLES.items()}
        products = torch.tensor(_EXAMPLES["first"].products, dtype=torch.float64)
        found["by_d"] = (products / _EXAMPLES["first"].dim).softmax(-1).tolist()
        keys = _LENGTH * torch.eye(5, 32, dtype=torch.float64)
        longer = keys.clone()
        longer[0] = 1.5 * keys[3]
        found["equal_keys"], found["longer_key"] = (_look_up(keys[3], one) for one in (keys, longer))
        return found

    def _weigh(self, example: _Example, scaled: bool) -> list[float]:
        """A query of ones, and keys that have these products with it."""
        query = torch.ones(1, example.dim, dtype=torch.float64)
        keys = torch.tensor(example.products, dtype=torch.float64)[:, None] / example.dim * torch.ones_like(query)
        weights: list[float] = attention_weights(query, keys, score=ScaledDot() if scaled else Dot())[0].tolist()
        return weights

    def report(self, parameters: AttentionParameters, results: Results) -> Report:
        """Each example as a table of its steps."""
        found = results.first("numbers")
        tables = [self._tabulate(example, found[name], name != "dictionary") for name, example in _EXAMPLES.items()]
        equal, longer = found["equal_keys"], found["longer_key"]
        head, rows = ["query = key 4", *_number("key", 5)], [["keys of length 4", *_spell(equal)]]
        tables.append(Table("A key is found by itself", head, [*rows, ["key 1 = 1.5 · key 4", *_spell(longer)]]))
        first, by_d = found["first"], found["by_d"]
        claims = [
            Claim("the first word's weights are .87, .12, .01 and 0", False, f"exactly {', '.join(_spell(first))}"),
            Claim(
                "the second word's weights are .08, .91, .01 and 0",
                False,
                f"exactly {', '.join(_spell(found['second']))}",
            ),
            Claim("a soft dictionary returns .3, .45, 0, .25 and 0", True, ", ".join(_spell(found["dictionary"]))),
            Claim("scores are rescaled by d", False, f"by √d; by d they would give {', '.join(_spell(by_d))}"),
            Claim(
                "a key is its own best match: k₄·k₄ is the largest product",
                False,
                f"only among keys of equal length; key 1 = 1.5 · key 4 takes {longer[0]:.4f} of the weight",
            ),
        ]
        return Report(
            tables,
            self._draw(found),
            claims,
            "Bars: the scores of a head, scaled, and as weights; five examples",
            columns=3,
        )

    def _tabulate(self, example: _Example, weights: Sequence[float], scaled: bool) -> Table:
        rows = [["q·k", *(f"{value:g}" for value in example.products)]]
        if scaled:
            rows.append([f"÷ √{example.dim}", *(f"{v / math.sqrt(example.dim):g}" for v in example.products)])
        rows += [["softmax", *_spell(weights)], ["notes print", *(f"{value:g}" for value in example.printed)]]
        terms = [f"{weight:.3f} v{number}" for number, weight in enumerate(weights, 1) if weight >= 0.0005]
        return Table(f"{example.title}: z = {' + '.join(terms)}", ["", *_number("key", len(weights))], rows)

    def _draw(self, found: Found) -> list[Bars]:
        first, keys = _EXAMPLES["first"], _number("k", 4)
        scaled = [value / math.sqrt(first.dim) for value in first.products]
        weight = Axis("weight", low=0.0, high=1.0)
        divided = [("÷ √d", found["first"]), ("÷ d", found["by_d"])]
        found_itself = [("keys of equal length", found["equal_keys"]), ("k1 = 1.5·k4", found["longer_key"])]
        return [
            Bars("1. products", keys, Axis("q·k"), [("q·k", first.products)]),
            Bars("2. divided by √64", keys, Axis("q·k / 8"), [("q·k / 8", scaled)]),
            Bars("3. softmax", keys, weight, [("weight", found["first"])]),
            Bars("by √d and by d", keys, weight, divided),
            Bars("a soft dictionary", _number("k", 5), weight, [("weight", found["dictionary"])]),
            Bars("a query that is k4", _number("k", 5), weight, found_itself),
        ]


def inspect(
    model: Model, text: str, *, stack: str | None = None, layer: int = -1, head: int = 0, token: int = -1
) -> Report:
    """The same steps of a head of somebody's model, at one token of a text: its last one, unless said otherwise."""
    trace = model.trace(text)
    attending = [one for one in trace.stacks if one.kind == "attention"]
    if not attending:
        raise DataError("this model does not attend to anything, so it has no head to show; `seqloom explore` shows it")
    found = [one for one in attending if stack in (None, one.name)]
    if not found:
        raise ConfigError(f"stack: this model attends in {' and '.join(one.name for one in attending)}, not in {stack}")
    chosen = found[-1]
    layers = chosen.layers
    if not -len(layers) <= layer < len(layers):
        raise ConfigError(f"layer: {chosen.name} has {len(layers)}, counted from 0, so there is no {layer}")
    sites = layers[layer].sites
    if not 0 <= head < len(sites):
        raise ConfigError(f"head: {layers[layer].name} has {len(sites)}, counted from 0, so there is no {head}")
    rows, columns = (trace.side(side).tokens for side in (chosen.queries, chosen.keys))
    if not -len(rows) <= token < len(rows):
        raise ConfigError(f"token: the text has {len(rows)} tokens, counted from 0, so there is no {token}")
    row, weights = token % len(rows), trace.mixing(sites[head])[token % len(rows)]
    steps = trace.arithmetic(sites[head], row, int(weights.argmax())).steps
    scores = next(step for step in steps if step.name == "scores of the row")
    seen = [at for at, value in enumerate(_as_list(scores.values)) if value is not None]
    names = [columns[at].text for at in seen]
    values = [float(_as_list(scores.values)[at] or 0.0) for at in seen]
    shares = [float(weights[at]) for at in seen]
    best = columns[int(weights.argmax())].text
    arithmetic = [[step.name, step.formula, _shorten(step.values)] for step in steps if step.labels is None]
    table = [[name, f"{value:.3f}", f"{share:.3f}"] for name, value, share in zip(names, values, shares, strict=True)]
    largest = sorted(range(len(seen)), key=lambda at: -shares[at])[:12]
    shown = sorted(largest)
    panels = [
        Bars("scores", [names[at] for at in shown], Axis("score"), [("score", [values[at] for at in shown])]),
        Bars(
            "weights",
            [names[at] for at in shown],
            Axis("weight", low=0.0, high=1.0),
            [("weight", [shares[at] for at in shown])],
        ),
    ]
    where = f"{sites[head]} at “{rows[row].text}”"
    return Report(
        [
            Table(f"{where}: every token that it may see", ["token", "score", "weight"], table),
            Table(f"The weight of “{best}”, step by step", ["step", "how", "numbers"], arithmetic),
        ],
        panels,
        [],
        f"Bars: the scores and the weights of {where}",
    )


def _as_list(values: float | Sequence[float | None]) -> list[float | None]:
    return [values] if isinstance(values, float) else list(values)


def _shorten(values: float | Sequence[float | None]) -> str:
    """A number, or the first coordinates of a vector."""
    numbers = [f"{value:.3f}" for value in _as_list(values)[:4] if value is not None]
    more = len(_as_list(values)) - 4
    return ", ".join(numbers) + (f", … ({more} more)" if more > 0 else "")


def _look_up(query: Tensor, keys: Tensor) -> list[float]:
    weights: list[float] = attention_weights(query[None], keys, score=Dot())[0].tolist()
    return weights


def _number(name: str, count: int) -> list[str]:
    space = " " if len(name) > 1 else ""
    return [f"{name}{space}{number}" for number in range(1, count + 1)]


def _spell(weights: Sequence[float]) -> list[str]:
    return [f"{weight:.3f}" for weight in weights]


EXPERIMENT = Attention()
