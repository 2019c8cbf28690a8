"""Recipes: how one of our tensors is made from theirs, and theirs from ours.

A recipe reads through a function that gives the tensor of a name. On import it runs twice: on tensors that have shapes
and no data, to see that everything fits before any memory is allocated, and then on the weights. It also knows the way
back, so one list of recipes both imports a layout and exports it.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqloom.errors import DataError

Get = Callable[[str], Tensor]
Named = Iterable[tuple[str, Tensor]]


@dataclass(frozen=True)
class Recipe:
    """One of our tensors from theirs, and theirs from ours."""

    read: Callable[[Get], Tensor]
    write: Callable[[Tensor], Named]


Recipes = dict[str, Recipe]
"""A recipe for each of our parameters, by name."""


def copy(name: str) -> Recipe:
    """Their tensor as it is."""
    return Recipe(lambda get: get(name), lambda ours: [(name, ours)])


def copy_twice(read: str, also: str) -> Recipe:
    """Their tensor as it is, which they also keep under another name."""
    return Recipe(lambda get: get(read), lambda ours: [(read, ours), (also, ours)])


def concatenate(*names: str, sizes: Sequence[int] | None = None) -> Recipe:
    """Their tensors one below the other, with the same number of rows each unless `sizes` says otherwise."""

    def write(ours: Tensor) -> Named:
        return zip(names, ours.split(list(sizes)) if sizes else ours.chunk(len(names)), strict=True)

    return Recipe(lambda get: torch.cat([get(name) for name in names]), write)


def transpose(name: str) -> Recipe:
    """Their matrix transposed."""
    return Recipe(lambda get: get(name).t(), lambda ours: [(name, ours.t())])


def flatten(name: str) -> Recipe:
    """Their table of one row, as a vector."""
    return Recipe(lambda get: get(name).flatten(), lambda ours: [(name, ours.unsqueeze(0))])


def skip_rows(name: str, rows: int) -> Recipe:
    """Their table without its first rows."""
    return Recipe(lambda get: get(name)[rows:], lambda ours: [(name, nn.functional.pad(ours, (0, 0, rows, 0)))])


def add_first_row(table: Recipe, other: str) -> Recipe:
    """A table to each row of which the first row of another one is added."""

    def write(ours: Tensor) -> Named:
        return [*table.write(ours), (other, ours.new_zeros(1, ours.shape[1]))]

    return Recipe(lambda get: table.read(get) + get(other)[0], write)


def zero_bias(weight: str) -> Recipe:
    """A bias of zeros for a weight of theirs that has none."""

    def write(ours: Tensor) -> Named:
        if ours.any():
            raise DataError(f"the bias that goes with {weight} is not 0, and this layout has no place for it")
        return ()

    return Recipe(lambda get: get(weight).new_zeros(len(get(weight))), write)


def concatenate_biases(layers: Sequence[str], weights: Container[str], sizes: Sequence[int]) -> Recipe:
    """The biases of layers of those sizes, zeros for the layers that have none."""
    parts = [copy(f"{n}.bias") if f"{n}.bias" in weights else zero_bias(f"{n}.weight") for n in layers]

    def write(ours: Tensor) -> Named:
        return [pair for part, own in zip(parts, ours.split(list(sizes)), strict=True) for pair in part.write(own)]

    return Recipe(lambda get: torch.cat([part.read(get) for part in parts]), write)


def group_by_kind(name: str, heads: int) -> Recipe:
    """Their rows are q, k, v of the first head, then of the second; ours are all queries, all keys, all values."""

    def exchange(rows: Tensor, first: int, second: int) -> Tensor:
        parts: Tensor = rows.unflatten(0, (first, second, -1))
        return parts.transpose(0, 1).flatten(0, 2)

    return Recipe(lambda get: exchange(get(name), heads, 3), lambda ours: [(name, exchange(ours, 3, heads))])


def scale(recipe: Recipe, factor: float) -> Recipe:
    """A tensor multiplied by a number."""
    return Recipe(lambda get: recipe.read(get) * factor, lambda ours: recipe.write(ours / factor))


def scale_queries(recipe: Recipe, rows: int, factor: float) -> Recipe:
    """The first rows, the queries, multiplied by a number: √K where scores are not divided by it."""
    if math.isclose(factor, 1.0):
        return recipe

    def multiply(whole: Tensor, by: float) -> Tensor:
        return torch.cat([whole[:rows] * by, whole[rows:]])

    return Recipe(lambda get: multiply(recipe.read(get), factor), lambda ours: recipe.write(multiply(ours, 1 / factor)))


def linear(
    ours: str, *theirs: str, bias: bool = True, sizes: Sequence[int] | None = None
) -> Iterator[tuple[str, Recipe]]:
    """The weight and the bias of a layer; several layers of theirs are one of ours."""
    for part in ("weight", "bias") if bias else ("weight",):
        yield f"{ours}.{part}", concatenate(*(f"{name}.{part}" for name in theirs), sizes=sizes)
