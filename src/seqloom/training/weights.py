"""Which weights a training starts from, which of them it changes, and which it ends with.

start        another run: its weights where names and shapes agree, new ones for the rest
average      w̄ ← β w̄ + (1 − β) w after every step, with β rising from 0 so that the start is forgotten
             (Polyak & Juditsky 1992)
last k       the mean of the weights of k checkpoints (Vaswani et al. 2017, §6.1)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from seqloom.config.train import TrainConfig
from seqloom.errors import ConfigError
from seqloom.nn.low_rank import add_adapters
from seqloom.runs.checkpoint import AVERAGE, verify_folder
from seqloom.runs.weights import find_weights, read_weights
from seqloom.training.distributed import cut_like

_READER = "features.reader."


def start_from(model: nn.Module, run: Path) -> set[str]:
    """Take over the weights of a run; returns the names of the parameters that were."""
    stored = find_weights(run)
    verify_folder(stored.weights)
    weights = read_weights(stored)
    if any(name.startswith(_READER) for name, _ in model.named_parameters()):
        weights = {_READER + name: tensor for name, tensor in weights.items()}
    taken = set()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in weights and weights[name].shape == parameter.shape:
                parameter.copy_(weights[name])
                taken.add(name)
    stacks = {name.split(".")[0] for name in taken}
    if not stacks & {"encoder", "decoder", "features"}:
        raise ConfigError(f"init: no encoder or decoder of {run} fits this model; compare the two model sections")
    return taken


def choose_trained(model: nn.Module, taken: set[str], config: TrainConfig) -> None:
    """Freeze what is not to be trained."""
    names = [name for name, _ in model.named_parameters()]
    for prefix in config.freeze:
        if not any(name.startswith(prefix) for name in names):
            parts = sorted({name.split(".")[0] for name in names})
            raise ConfigError(f'train.freeze: nothing is called "{prefix}"; the parts are {", ".join(parts)}')
    for name, parameter in model.named_parameters():
        if any(name.startswith(prefix) for prefix in config.freeze):
            parameter.requires_grad_(False)
    if config.adapters is not None:
        if not taken:
            raise ConfigError("train.adapters adapt the weights of another run; say which one with init")
        add_adapters(model, taken, config.adapters.rank, config.adapters.alpha)


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
            yield AVERAGE + name, kept

    def load(self, state: dict[str, Tensor]) -> None:
        """As it was saved."""
        for name, kept in self._kept.items():
            kept.copy_(cut_like(state[AVERAGE + name], kept))


def average_weights(checkpoints: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor."""
    return {name: torch.stack([weights[name] for weights in checkpoints]).mean(0) for name in checkpoints[0]}


@torch.no_grad()
def set_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Give a model these weights; those it has and `weights` does not, stay."""
    parameters = dict(model.named_parameters())
    for name, tensor in weights.items():
        parameters[name].copy_(cut_like(tensor, parameters[name]))
