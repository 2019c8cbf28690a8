"""What a folder becomes: a task, and for each of our parameters a recipe that makes it of their tensors.

A recipe is a function of "give me the tensor of that name". It runs twice: on outlines that have shapes and no numbers,
to see that everything fits before anything is allocated, and then on the numbers. It also knows its way back, so that
what is imported by a list of recipes is exported by the same list.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch

import torch
from torch import Tensor, nn

from seqloom.errors import DataError
from seqloom.hub.huggingface.files import Weights, check_numbers
from seqloom.tasks import Task

Get = Callable[[str], Tensor]
Named = Iterable[tuple[str, Tensor]]


@dataclass(frozen=True)
class Recipe:
    """One of our tensors from theirs, and theirs from ours."""

    make: Callable[[Get], Tensor]
    undo: Callable[[Tensor], Named]

    def __call__(self, get: Get) -> Tensor:
        """Our tensor."""
        return self.make(get)


Recipes = dict[str, Recipe]


@dataclass(frozen=True)
class Plan:
    """A model of ours and how to fill it."""

    task: Task
    recipes: Recipes
    labels: tuple[str, ...] = ()
    unused: tuple[str, ...] = field(default=())
    """Patterns of their names that have no place here and need none."""

    def check(self, weights: Weights, vocab_size: int, where: str) -> None:
        """Refuse a folder whose tensors are not those of its configuration; nothing is allocated."""
        if (self.task.model.vocab_size or vocab_size) < vocab_size:
            raise DataError(f"{where}: vocab_size: is {self.task.model.vocab_size}, but there are {vocab_size} tokens")
        try:
            with torch.device("meta"):
                network = self.task.build(vocab_size, self.labels)
        except (RuntimeError, OverflowError, TypeError) as error:
            raise DataError(f"{where}: no model can have the sizes that its configuration says: {error}") from None
        wanted = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
        if wanted.keys() != self.recipes.keys():
            raise AssertionError(f"recipes differ from parameters: {wanted.keys() ^ self.recipes.keys()}")
        used: set[str] = set()

        def outline(name: str) -> Tensor:
            if name not in weights:
                raise DataError(f"{where}: {name} is missing; its configuration asks for it")
            used.add(name)
            return weights.outline(name)

        for name, recipe in self.recipes.items():
            try:
                shape = tuple(recipe(outline).shape)
            except (RuntimeError, IndexError) as error:
                raise DataError(f"{where}: the tensors of {name} do not go together: {error}") from None
            if shape != wanted[name]:
                raise DataError(f"{where}: {name} is {shape}, but by its configuration it is {wanted[name]}")
        check_numbers(weights, used)
        left = [n for n in weights if n not in used and not any(fnmatch(n, pattern) for pattern in self.unused)]
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            raise DataError(f"{where}: there is no place here for {', '.join(sorted(left)[:3])}{more}")

    @torch.no_grad()
    def build(self, weights: Weights, vocab_size: int) -> nn.Module:
        """The network with its numbers."""
        network = self.task.build(vocab_size, self.labels)
        for name, parameter in network.named_parameters():
            parameter.copy_(self.recipes[name](weights.read))
        return network


def take(name: str) -> Recipe:
    """Their tensor as it is."""
    return Recipe(lambda get: get(name), lambda ours: [(name, ours)])


def take_both(read: str, also: str) -> Recipe:
    """Their tensor as it is, of two that are the same one."""
    return Recipe(lambda get: get(read), lambda ours: [(read, ours), (also, ours)])


def join(*names: str, sizes: Sequence[int] | None = None) -> Recipe:
    """Their tensors one below the other, of as many rows each unless `sizes` says otherwise."""

    def undo(ours: Tensor) -> Named:
        return zip(names, ours.split(list(sizes)) if sizes else ours.chunk(len(names)), strict=True)

    return Recipe(lambda get: torch.cat([get(name) for name in names]), undo)


def turn(name: str) -> Recipe:
    """Their matrix with rows and columns exchanged."""
    return Recipe(lambda get: get(name).t(), lambda ours: [(name, ours.t())])


def flat(name: str) -> Recipe:
    """Their table of one row, as a vector."""
    return Recipe(lambda get: get(name).flatten(), lambda ours: [(name, ours.unsqueeze(0))])


def skip(name: str, rows: int) -> Recipe:
    """Their table without its first rows."""
    return Recipe(lambda get: get(name)[rows:], lambda ours: [(name, nn.functional.pad(ours, (0, 0, rows, 0)))])


def add_first(positions: Recipe, types: str) -> Recipe:
    """Positions to each of which the first row of another table is added."""

    def undo(ours: Tensor) -> Named:
        return [*positions.undo(ours), (types, ours.new_zeros(1, ours.shape[1]))]

    return Recipe(lambda get: positions(get) + get(types)[0], undo)


def zeros_for(name: str) -> Recipe:
    """A bias that is not there, for a matrix that is."""
    return Recipe(lambda get: get(name).new_zeros(len(get(name))), lambda ours: _leave_out(name, ours))


def _leave_out(name: str, ours: Tensor) -> Named:
    if ours.any():
        raise DataError(f"the bias that goes with {name} is not 0, and this layout has no place for it")
    return ()


def join_biases(layers: Sequence[str], weights: Mapping[str, object], sizes: Sequence[int]) -> Recipe:
    """The biases of some layers of those sizes, zeros for those that have none."""
    parts = [take(f"{n}.bias") if f"{n}.bias" in weights else zeros_for(f"{n}.weight") for n in layers]

    def undo(ours: Tensor) -> Named:
        return [pair for part, own in zip(parts, ours.split(list(sizes)), strict=True) for pair in part.undo(own)]

    return Recipe(lambda get: torch.cat([part(get) for part in parts]), undo)


def part_heads(name: str, heads: int) -> Recipe:
    """Their rows, of which each head has its queries, keys and values together; ours are all queries, and so on."""

    def exchange(rows: Tensor, first: int, second: int) -> Tensor:
        parts: Tensor = rows.unflatten(0, (first, second, -1))
        return parts.transpose(0, 1).flatten(0, 2)

    return Recipe(lambda get: exchange(get(name), heads, 3), lambda ours: [(name, exchange(ours, 3, heads))])


def scaled(recipe: Recipe, factor: float) -> Recipe:
    """Multiplied by a number."""
    return Recipe(lambda get: recipe(get) * factor, lambda ours: recipe.undo(ours / factor))


def stretch_queries(recipe: Recipe, rows: int, factor: float) -> Recipe:
    """Queries multiplied by a number: a score that is not divided by √K is one of queries √K times as long."""

    def stretch(whole: Tensor, by: float) -> Tensor:
        return torch.cat([whole[:rows] * by, whole[rows:]])

    changed = Recipe(lambda get: stretch(recipe(get), factor), lambda ours: recipe.undo(stretch(ours, 1 / factor)))
    return recipe if math.isclose(factor, 1.0) else changed


def linear(
    ours: str, *theirs: str, bias: bool = True, sizes: Sequence[int] | None = None
) -> Iterator[tuple[str, Recipe]]:
    """The weight of a layer and its bias; several of theirs are one of ours."""
    yield f"{ours}.weight", join(*(f"{name}.weight" for name in theirs), sizes=sizes)
    if bias:
        yield f"{ours}.bias", join(*(f"{name}.bias" for name in theirs), sizes=sizes)


def count_layers(said: int, weights: Mapping[str, object], where: str) -> int:
    """How many layers, where that many can be there at all."""
    if said > len(weights):
        raise DataError(f"{where}: speaks of {said} layers, but there are {len(weights)} tensors")
    return said
