"""The grid: which keys take which values, and the cells that this makes.

    model.encoder.family = transformer, recurrent     train.optimizer = muon, adamw     shares 0.1, 1     3 seeds

are 2 × 2 × 2 cells, each trained with 3 seeds: 24 trainings. A training is a *trial*.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from seqloom.config.base import CHOOSERS
from seqloom.errors import ConfigError

_CLOSES = {"[": "]", "{": "}", '"': '"', "'": "'"}
_REFUSED = {
    "task": "trainings for different tasks cannot be compared",
    "train.seed": "`seeds` says how many seeds each is trained with",
}


@dataclass(frozen=True)
class Axis:
    """A key and the values that it takes."""

    key: str
    values: tuple[str, ...]
    """As they are written on the command line."""

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers, so that there is a curve over them."""
        return all(_is_number(value) for value in self.values)


@dataclass(frozen=True)
class Cell:
    """One combination of values, with some share of the data."""

    title: str
    """The values, as people say them."""
    values: tuple[str, ...]
    """One of each axis."""
    share: float = 1.0
    shows_share: bool = False
    """Whether there are cells with other shares."""

    @property
    def name(self) -> str:
        """The values and the share."""
        share = f"{100 * self.share:g}% of the data" if self.shows_share else ""
        return ", ".join(filter(None, (self.title, share)))

    def name_folder(self, seed: int) -> str:
        """The folder of a training, below that of the comparison."""
        title = re.sub(r"[^A-Za-z0-9.+_-]+", "-", self.title).strip("-.")[:80]
        return "-".join(filter(None, (title, f"share-{self.share:g}" if self.shows_share else "", f"seed-{seed}")))


@dataclass(frozen=True)
class Grid:
    """All cells."""

    axes: tuple[Axis, ...]
    shares: tuple[float, ...]
    cells: tuple[Cell, ...]
    """Share by share, the combinations of values in the order in which they were given."""

    def set_values(self, cell: Cell) -> list[str]:
        """The keys of a cell with their values, as overrides."""
        return [f"{axis.key}={value}" for axis, value in zip(self.axes, cell.values, strict=True)]


def read_grid(over: Sequence[str], shares: str | None = None) -> Grid:
    """The grid of some `KEY=VALUE,VALUE,…` and of shares such as `0.1,1`."""
    axes = tuple(read_axis(text) for text in over)
    for key, count in Counter(axis.key for axis in axes).items():
        if count > 1:
            raise ConfigError(f"`over` {key}: is given twice; list all its values in one")
    known = {axis.key for axis in axes}
    if shares is not None and "data.train_share" in known:
        raise ConfigError("`over` data.train_share: is what `data_share` sets; give one of them")
    sizes = (1.0,) if shares is None else read_shares(shares)
    if not axes and len(sizes) == 1:
        raise ConfigError("there is nothing to compare: give `over` KEY=VALUE,VALUE or `data_share` 0.1,1")
    words = _name_values(axes)
    cells = tuple(
        Cell(", ".join(word for word, _ in chosen), tuple(value for _, value in chosen), share, sizes != (1.0,))
        for share in sizes
        for chosen in product(*(zip(row, axis.values, strict=True) for row, axis in zip(words, axes, strict=True)))
    )
    if len({cell.name_folder(1) for cell in cells}) < len(cells):
        raise ConfigError("two cells would have a folder of the same name; give one of their values by itself")
    return Grid(axes, sizes, cells)


def read_axis(text: str) -> Axis:
    """`KEY=VALUE,VALUE,…`; a comma within brackets or quotes belongs to a value."""
    key, equals, rest = text.partition("=")
    key = key.strip()
    values = tuple(value.strip() for value in split_values(rest))
    if not equals or not key or not all(values):
        raise ConfigError(f'`over` "{text}": is not of the form KEY=VALUE,VALUE, such as model.encoder.num_layers=1,2')
    if key in _REFUSED:
        raise ConfigError(f"`over` {key}: {_REFUSED[key]}; leave it out")
    if key.startswith(("data.test", "data.valid")):
        raise ConfigError(f"`over` {key}: all trainings must be judged by the same records; leave it out")
    if len({*values}) < len(values):
        raise ConfigError(f"`over` {key}: a value is given twice")
    return Axis(key, values)


def split_values(text: str) -> list[str]:
    """Cut at the commas that stand outside of brackets and quotes."""
    parts, open_ones = [""], ""
    for letter in text:
        if open_ones and letter == _CLOSES[open_ones[-1]]:
            open_ones = open_ones[:-1]
        elif letter in _CLOSES and (not open_ones or open_ones[-1] in "[{"):
            open_ones += letter
        if letter == "," and not open_ones:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def read_shares(text: str) -> tuple[float, ...]:
    """`0.01,0.1,1`: rising shares of the training data."""
    try:
        shares = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        shares = ()
    if not shares or not all(0.0 < share <= 1.0 for share in shares):
        raise ConfigError(f"`data_share` {text}: give numbers above 0 and up to 1, such as 0.01,0.1,1")
    return shares


def _name_values(axes: Sequence[Axis]) -> list[list[str]]:
    """Each value as people say it: `recurrent`, `num_layers 2`; with as much of the key as tells axes apart."""
    last = Counter(axis.key.rpartition(".")[2] for axis in axes)
    named = []
    for axis in axes:
        *above, key = axis.key.split(".")
        if last[key] > 1 and above:
            key = f"{above[-1]}.{key}"
        speaks = key in CHOOSERS
        named.append([_unquote(value) if speaks else f"{key} {_unquote(value)}" for value in axis.values])
    return named


def _unquote(value: str) -> str:
    return value[1:-1] if value[0] in "\"'" and value[-1] == value[0] and len(value) > 1 else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
