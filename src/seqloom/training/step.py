"""One update of the weights: the whole of training, on one screen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.devices import read
from seqloom.errors import ConfigError
from seqloom.runs.machine import choose_precision
from seqloom.seeds import derive_seed
from seqloom.tasks import Task
from seqloom.training.distributed import ProcessGroup, defer_sum, gather, spread
from seqloom.training.optimizers import Optimizer
from seqloom.types import move

_LAYERS_EVERY, _FIRST_LAYERS_EVERY = 100, 10
"""How often gradients are measured by layer; more often in the beginning, when they change most."""
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Objective(nn.Module):
    """A model and what it is trained to do, as one module: what can be spread over processes is a module."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Any) -> tuple[Tensor, int]:
        """The sum over predictions, and their number."""
        loss = self.task.compute_loss(self.model, batch, smoothing=self.task.train.label_smoothing)
        return loss.total, loss.count


class Learner:
    """A model, what it is trained to do, what updates it, and the processes that do so."""

    def __init__(self, model: nn.Module, task: Task, group: ProcessGroup) -> None:
        self.model, self.task, self.config, self.group = model, task, task.train, group
        self.device = next(model.parameters()).device
        short = self.config.precision == "float16" and self.device.type == "cpu"
        if short and any(isinstance(module, nn.LSTM) for module in model.modules()):
            raise ConfigError(
                'train.precision = "float16": PyTorch has no LSTM in float16 on a processor; use "bfloat16" or '
                '"float32", or another cell'
            )
        self.kind = _TYPES[choose_precision(self.config.precision, self.device)]
        self.objective = spread(Objective(model, task), group, self.config.sharding)
        self.optimizer = Optimizer(model, self.config.optimizer)


@dataclass(frozen=True)
class Outcome:
    """What a step did."""

    loss: float
    """The mean over predictions."""
    count: int
    norm: float
    """The norm of the gradient before clipping."""
    layers: dict[str, float]
    """The same by layer, at every hundredth step, and at every tenth of the first hundred."""

    @property
    def finite(self) -> bool:
        """Whether the update was made: one from a gradient that is not finite never is."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


def take_step(learner: Learner, parts: Sequence[Any], step: int, scale: float = 1.0) -> Outcome:
    """Add up the gradients of all parts of a batch on all ranks, divide by its predictions, clip, update.

    `scale` lifts small gradients into the range of float16 on their way back, and is divided out again.
    """
    config, group, model = learner.config, learner.group, learner.model
    losses: list[Tensor] = []
    count = 0
    for index, part in enumerate(parts):
        # Dropout is a function of the seed, the step and the part of the batch, so resuming is exact.
        torch.manual_seed(derive_seed(config.seed, step, group.rank * len(parts) + index))
        with defer_sum(learner.objective, index + 1 < len(parts)):
            with torch.autocast(learner.device.type, learner.kind, enabled=learner.kind != torch.float32):
                loss, predictions = learner.objective(move(part, learner.device))
            (loss * scale).backward()
        losses.append(loss.detach())
        count += predictions
    measured = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    gradients = [*measured.values()]
    due = step % (_FIRST_LAYERS_EVERY if step < _LAYERS_EVERY else _LAYERS_EVERY) == 0
    squares = [gather(grad.square().sum()) for grad in gradients] if due else []
    length, *sums = read(gather(nn.utils.get_total_norm(gradients)), *losses, *squares)
    total, summed = group.add(sum(sums[: len(losses)], 0.0), float(count))
    count = int(summed)
    share = group.size / (scale * max(count, 1))
    norm = share * length
    layers = measure_layers([*measured], sums[len(losses) :], share) if due else {}
    torch._foreach_mul_(gradients, share * min(1.0, config.clip / (norm + 1e-6)))
    outcome = Outcome(total / max(count, 1), count, norm, layers)
    if outcome.finite:
        learner.optimizer.step()
    model.zero_grad()
    return outcome


def measure_layers(names: Sequence[str], sums: Sequence[float], share: float) -> dict[str, float]:
    """The norm of a share of the gradient of each layer, from the sum of squares of each parameter's gradient.

    The layers are `encoder.blocks.0`, `encoder.blocks.1`, …, `head`.
    """
    squares: dict[str, float] = {}
    for name, total in zip(names, sums, strict=True):
        parts = name.split(".")
        numbered = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
        layer = ".".join(parts[: numbered + 1])
        squares[layer] = squares.get(layer, 0.0) + total
    return {layer: share * math.sqrt(square) for layer, square in squares.items()}
