"""Recipes: how one of our tensors is made from theirs, and theirs from ours.

A recipe reads tensors through a function from names to tensors. On import it runs twice: first on tensors that have
shapes but no data, to check that everything fits before any memory is allocated, then on the weights. It also goes the
other way, so the same recipes import and export a layout.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Their tensor as it is, which they store under a second name, too."""
    return Recipe(lambda get: get(read), lambda ours: [(read, ours), (also, ours)])


def concatenate(parts: Sequence[Recipe], sizes: Sequence[int] | None = None) -> Recipe:
    """Tensors one below the other, with the same number of rows each unless `sizes` are given."""

    def write(ours: Tensor) -> Named:
        rows = ours.split(list(sizes)) if sizes else ours.chunk(len(parts))
        return [pair for part, own in zip(parts, rows, strict=True) for pair in part.write(own)]

    return Recipe(lambda get: torch.cat([part.read(get) for part in parts]), write)


def transpose(recipe: Recipe) -> Recipe:
    """A matrix transposed."""
    return Recipe(lambda get: recipe.read(get).t(), lambda ours: recipe.write(ours.t()))


def flatten(name: str) -> Recipe:
    """Their table of one row, as a vector."""
    return Recipe(lambda get: get(name).flatten(), lambda ours: [(name, ours.unsqueeze(0))])


def skip_rows(name: str, rows: int) -> Recipe:
    """Their table without its first rows."""
    return Recipe(lambda get: get(name)[rows:], lambda ours: [(name, nn.functional.pad(ours, (0, 0, rows, 0)))])


def add_first_row(table: Recipe, other: str) -> Recipe:
    """A table with the first row of another table added to each of its rows."""

    def write(ours: Tensor) -> Named:
        return [*table.write(ours), (other, ours.new_zeros(1, ours.shape[1]))]

    return Recipe(lambda get: table.read(get) + get(other)[0], write)


def zero_bias(weight: str) -> Recipe:
    """A bias of zeros for a weight that has none in their files."""

    def write(ours: Tensor) -> Named:
        if ours.any():
            raise DataError(f"the bias that goes with {weight} is not 0, and this layout has no place for it")
        return ()

    return Recipe(lambda get: get(weight).new_zeros(len(get(weight))), write)


def group_by_kind(recipe: Recipe, heads: int) -> Recipe:
    """Their rows are q, k, v of the first head, then of the second; ours are all queries, all keys, all values."""

    def exchange(rows: Tensor, first: int, second: int) -> Tensor:
        parts: Tensor = rows.unflatten(0, (first, second, -1))
        return parts.transpose(0, 1).flatten(0, 2)

    return Recipe(lambda get: exchange(recipe.read(get), heads, 3), lambda ours: recipe.write(exchange(ours, 3, heads)))


def scale(recipe: Recipe, factor: float) -> Recipe:
    """A tensor multiplied by a number."""
    return Recipe(lambda get: recipe.read(get) * factor, lambda ours: recipe.write(ours / factor))


def scale_queries(recipe: Recipe, rows: int, factor: float) -> Recipe:
    """The first rows, which make the queries, multiplied by a number."""
    if math.isclose(factor, 1.0):
        return recipe

    def multiply(whole: Tensor, by: float) -> Tensor:
        return torch.cat([whole[:rows] * by, whole[rows:]])

    return Recipe(lambda get: multiply(recipe.read(get), factor), lambda ours: recipe.write(multiply(ours, 1 / factor)))


def linear(ours: str, *theirs: str, bias: bool = True, sizes: Sequence[int] | None = None) -> Recipes:
    """The weight and the bias of a layer or a norm; several layers of theirs may be one of ours."""
    parts = ("weight", "bias") if bias else ("weight",)
    return {f"{ours}.{part}": concatenate([copy(f"{name}.{part}") for name in theirs], sizes) for part in parts}


def map_blocks(stack: str, layer: str, count: int, parts: Mapping[str, Sequence[str]], *, bias: bool = True) -> Recipes:
    """The blocks of a stack; `layer` is the prefix of their n-th layer, `parts` their modules for each of ours."""
    recipes: Recipes = {}
    for n in range(count):
        for ours, theirs in parts.items():
            recipes |= linear(f"{stack}.blocks.{n}.{ours}", *(layer.format(n) + name for name in theirs), bias=bias)
    return recipes
