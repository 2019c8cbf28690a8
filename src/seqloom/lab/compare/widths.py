"""Models of equal size: the width whose number of weights is nearest to a given one.

Families of the same width differ by a factor of two in their weights, so a comparison at equal width compares sizes as
well. Weights are counted exactly, by building the network without any numbers in it (torch's meta device); a width that
the configuration does not allow, because heads must divide it or directions share it, is passed over.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from seqloom.errors import ConfigError
from seqloom.tasks import Task
from seqloom.text import Tokenizer

TOLERANCE = 0.05
"""How far the number of weights may be from the one that is wanted."""
_WIDEST = 1 << 14
_APART = 512
"""The longest way from one allowed width to the next."""


@dataclass(frozen=True)
class Width:
    """A width, and how many weights a model of that width has."""

    model_dim: int
    weights: int


def count_weights(task: Task, tokenizer: Tokenizer, labels: tuple[str, ...]) -> int:
    """The number of weights of a network, shared ones once."""
    with torch.device("meta"):
        network = task.build(tokenizer, labels)
    return sum(parameter.numel() for parameter in network.parameters())


def name_widths(task: Task) -> list[str]:
    """The keys of the width: one, or two that are equal."""
    stacks = {name: stack for name in ("encoder", "decoder") if (stack := getattr(task.model, name, None)) is not None}
    if len({stack.model_dim for stack in stacks.values()}) > 1:
        dims = " and ".join(f"{name}.model_dim = {stack.model_dim}" for name, stack in stacks.items())
        raise ConfigError(f"`match` weights sets one width, but there are two: {dims}; make them equal")
    return [f"model.{name}.model_dim" for name in stacks]


def refuse_fixed(task: Task, keys: set[str]) -> None:
    """Refuse to solve for a width that something else decides."""
    for key in sorted(keys):
        if key.endswith(".model_dim"):
            raise ConfigError(f"`over` {key}: is what `match` weights sets; leave one of them out")
    if task.init is not None:
        raise ConfigError("`match` weights: the weights of init have a width already; leave one of them out")
    if task.model.initial_vectors is not None and task.model.embedding_dim is None:
        raise ConfigError(
            "`match` weights: model.initial_vectors have a width already; set model.embedding_dim to it, which a "
            "linear map then takes to any model_dim"
        )


def solve(wanted: int, count: Callable[[int], int | None], name: str) -> Width:
    """The width whose weights are nearest to those wanted; `count` gives None for a width that is not allowed.

    More width is never fewer weights, so the smallest width that has enough is found by halving.
    """
    low, high = 0, _WIDEST
    while high - low > 1:
        middle = (low + high) // 2
        found = _round_up(middle, high, count)
        if found is None or found.weights >= wanted:
            high = middle
        else:
            low = found.model_dim
    above, below = _round_up(max(high, 1), high + _APART, count), _round_down(low, count)
    known = [width for width in (below, above) if width is not None]
    if not known:
        raise ConfigError(f"`match` weights: no width is allowed for {name}; look at its num_heads and head_dim")
    best = min(known, key=lambda width: abs(width.weights - wanted))
    if abs(best.weights - wanted) > TOLERANCE * wanted:
        raise ConfigError(
            f"`match` weights: no width of {name} comes within {TOLERANCE:.0%} of {wanted:,} weights; model_dim = "
            f"{best.model_dim} has {best.weights:,} ({best.weights / wanted - 1:+.1%}). Change its num_layers, or "
            "leave `match` out"
        )
    return best


def _round_up(start: int, stop: int, count: Callable[[int], int | None]) -> Width | None:
    """The first allowed width from here on."""
    for dim in range(start, stop):
        if (weights := count(dim)) is not None:
            return Width(dim, weights)
    return None


def _round_down(start: int, count: Callable[[int], int | None]) -> Width | None:
    for dim in range(start, max(0, start - _APART), -1):
        if (weights := count(dim)) is not None:
            return Width(dim, weights)
    return None
