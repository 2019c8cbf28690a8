"""Optimizers from their configuration, behind one small interface: step, and a state made of tensors alone."""

from collections.abc import Iterator
from typing import assert_never

from torch import Tensor, nn

from seqloom.config.train import AdamW, Muon, Optimizer
from seqloom.nn.embeddings import OutputLayer, TokenEmbedding
from seqloom.nn.positions import LearnedPositions
from seqloom.training.adamw import AdamW as AdamWOptimizer
from seqloom.training.muon import Muon as MuonOptimizer
from seqloom.training.sharding import cut_like


class Updater:
    """One or more optimizers that share a schedule. Its state can be saved without pickling."""

    def __init__(self, model: nn.Module, config: Optimizer) -> None:
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self._parts = _build(model, config)
        self._share = 1.0

    def set_rate(self, share: float) -> None:
        """Every rate at a share of its peak."""
        self._share = share

    def step(self) -> None:
        """Update the weights from their gradients, and drop those."""
        for part in self._parts:
            part.step(self._share)
            for parameter in part.parameters:
                parameter.grad = None

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Every number the optimizers remember, as `parameter/number`."""
        for part in self._parts:
            for parameter, numbers in part.state.items():
                for key, value in numbers.items():
                    yield f"{self._names[parameter]}/{key}", value

    def load(self, state: dict[str, Tensor]) -> None:
        """Remember what `state` says."""
        for part in self._parts:
            for parameter in part.parameters:
                prefix = self._names[parameter] + "/"
                mine = {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
                part.state[parameter] |= {
                    key: cut_like(value, parameter if value.ndim else value).to(parameter.device, copy=True)
                    for key, value in mine.items()
                }


def _build(model: nn.Module, config: Optimizer) -> list[AdamWOptimizer | MuonOptimizer]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    match config:
        case AdamW():
            return [*_adamw(trained, config)]
        case Muon():
            tables = {p for m in model.modules() if isinstance(m, _TABLES) for p in m.parameters()}
            matrices = [p for p in trained if p.ndim == 2 and p not in tables]
            rest = [p for p in trained if p.ndim != 2 or p in tables]
            muon = MuonOptimizer(
                matrices, rate=config.matrix_rate, momentum=config.momentum, weight_decay=config.weight_decay
            )
            return [muon, *_adamw(rest, config)]
        case _ as unreachable:
            assert_never(unreachable)


_TABLES = (TokenEmbedding, OutputLayer, LearnedPositions)


def _adamw(parameters: list[nn.Parameter], config: AdamW | Muon) -> list[AdamWOptimizer]:
    """Matrices decay, vectors (biases, gains) do not."""
    betas = (config.beta1, config.beta2)
    groups = (
        ([p for p in parameters if p.ndim >= 2], config.weight_decay),
        ([p for p in parameters if p.ndim < 2], 0.0),
    )
    return [AdamWOptimizer(group, rate=config.learning_rate, betas=betas, weight_decay=d) for group, d in groups]
