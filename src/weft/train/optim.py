"""Optimizers from their configuration, behind one small interface: step, and a state made of tensors alone."""

from collections.abc import Iterator
from typing import assert_never

import torch
from torch import Tensor, nn

from weft.config.train import AdamW, Muon, Optimizer
from weft.nn.embeddings import OutputLayer, TokenEmbedding
from weft.nn.positions import LearnedPositions
from weft.train.muon import Muon as MuonOptimizer
from weft.train.sharding import cut_like


class Updater:
    """One or two optimizers that share a schedule. Its state can be saved without pickling."""

    def __init__(self, model: nn.Module, config: Optimizer) -> None:
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self._parts = _build(model, config)
        for part in self._parts:
            for group in part.param_groups:
                group["peak"] = group["lr"]

    def set_rate(self, share: float) -> None:
        """Every rate at a share of its peak."""
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = share * group["peak"]

    def step(self) -> None:
        """Update the weights from their gradients, and drop those."""
        for part in self._parts:
            part.step()
            part.zero_grad()

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Every number the optimizers remember, as `parameter/number`."""
        for part in self._parts:
            for parameter, numbers in part.state.items():
                for key, value in numbers.items():
                    yield f"{self._names[parameter]}/{key}", value

    def load(self, state: dict[str, Tensor]) -> None:
        """Remember what `state` says."""
        for part in self._parts:
            for group in part.param_groups:
                for parameter in group["params"]:
                    prefix = self._names[parameter] + "/"
                    mine = {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
                    part.state[parameter] = {
                        key: cut_like(value, parameter if value.ndim else value).to(parameter.device, copy=True)
                        for key, value in mine.items()
                    }


def _build(model: nn.Module, config: Optimizer) -> list[torch.optim.Optimizer]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    match config:
        case AdamW():
            return [_adamw(trained, config)]
        case Muon():
            tables = {p for m in model.modules() if isinstance(m, _TABLES) for p in m.parameters()}
            matrices = [p for p in trained if p.ndim == 2 and p not in tables]
            rest = [p for p in trained if p.ndim != 2 or p in tables]
            muon = MuonOptimizer(
                matrices, lr=config.matrix_rate, momentum=config.momentum, weight_decay=config.weight_decay
            )
            return [muon, _adamw(rest, config)]
        case _ as unreachable:
            assert_never(unreachable)


_TABLES = (TokenEmbedding, OutputLayer, LearnedPositions)


def _adamw(parameters: list[nn.Parameter], config: AdamW | Muon) -> torch.optim.Optimizer:
    """Matrices decay, vectors (biases, gains) do not."""
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=config.learning_rate, betas=betas, fused=True
    )
