"""Averages of weights over time: a running one, and one over the last checkpoints.

running    w̄ ← β w̄ + (1 − β) w after every step, with β rising from 0 so that the start is forgotten
(Polyak & Juditsky 1992)
last k     the mean of the weights of k checkpoints (Vaswani et al. 2017, §6.1)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seqloom.training.sharding import cut_like

_PREFIX = "average/"


class RunningAverage:
    """The average of a model's weights so far; with `memory` 0 it is the model itself."""

    def __init__(self, model: nn.Module, memory: float) -> None:
        self._model, self._memory = model, memory
        self._kept = {name: p.detach().clone() for name, p in model.named_parameters()} if memory else {}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step."""
        memory = min(self._memory, (1 + step) / (10 + step))
        parameters = dict(self._model.named_parameters())
        for name, kept in self._kept.items():
            kept.lerp_(parameters[name], 1.0 - memory)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The model has the averaged weights inside the `with` block, and its own again after it."""
        own = {name: p.detach().clone() for name, p in self._model.named_parameters()} if self._kept else {}
        set_weights(self._model, self._kept)
        try:
            yield
        finally:
            set_weights(self._model, own)

    @property
    def weights(self) -> dict[str, Tensor]:
        """The averaged weights by name; none where there is no average."""
        return self._kept

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """What to save."""
        for name, kept in self._kept.items():
            yield _PREFIX + name, kept

    def load(self, state: dict[str, Tensor]) -> None:
        """As it was saved."""
        for name, kept in self._kept.items():
            kept.copy_(cut_like(state[_PREFIX + name], kept))


def average_weights(checkpoints: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor."""
    return {name: torch.stack([weights[name] for weights in checkpoints]).mean(0) for name in checkpoints[0]}


@torch.no_grad()
def set_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Give a model these weights; those it has and `weights` does not, stay."""
    parameters = dict(model.named_parameters())
    for name, tensor in weights.items():
        parameters[name].copy_(cut_like(tensor, parameters[name]))
