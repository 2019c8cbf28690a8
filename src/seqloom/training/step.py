"""One update of the weights: the whole of training, on one screen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from seqloom.config.train import TrainConfig
from seqloom.seeds import derive_seed
from seqloom.training.objectives import Batch, Objective
from seqloom.training.optim import Updater
from seqloom.training.sharding import defer_sum, gather, spread
from seqloom.training.team import Team
from seqloom.types import move

_LOOK_EVERY = 100
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Learner:
    """A model, what it is trained to do, what updates it, and the team it does so in."""

    def __init__(self, model: nn.Module, config: TrainConfig, team: Team) -> None:
        self.model, self.config, self.team = model, config, team
        self.objective = spread(Objective(model, config.label_smoothing), team, config.sharding)
        self.updater = Updater(model, config.optimizer)
        self.device = next(model.parameters()).device


@dataclass(frozen=True)
class Outcome:
    """What a step did."""

    loss: float
    """The mean over predictions."""
    count: int
    norm: float
    """The length of the gradient before clipping."""
    layers: dict[str, float]
    """The same by layer, at the steps that look."""

    @property
    def finite(self) -> bool:
        """Whether the update was made: one from a gradient that is not finite never is."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


def take_step(learner: Learner, parts: Sequence[Batch], step: int, scale: float = 1.0) -> Outcome:
    """Add up the gradients of all parts of a batch on all ranks, divide by its predictions, clip, update.

    `scale` lifts small gradients into the range of float16 on their way back, and is divided out again.
    """
    config, team, model = learner.config, learner.team, learner.model
    total, count = 0.0, 0
    for index, part in enumerate(parts):
        # Dropout is a function of the seed, the step and the part of the batch, so resuming is exact.
        torch.manual_seed(derive_seed(config.seed, step, team.rank * len(parts) + index))
        kind = _TYPES[config.precision]
        with defer_sum(learner.objective, index + 1 < len(parts)):
            with torch.autocast(learner.device.type, kind, enabled=kind != torch.float32):
                loss, predictions = learner.objective(move(part, learner.device))
            (loss * scale).backward()
        total, count = total + float(loss.detach()), count + predictions
    total, summed = team.add(total, float(count))
    count = int(summed)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    share = team.size / (scale * max(count, 1))
    layers = measure_layers(model, share) if step % _LOOK_EVERY == 0 else {}
    norm = share * float(gather(nn.utils.get_total_norm(gradients)))
    torch._foreach_mul_(gradients, share * min(1.0, config.clip / (norm + 1e-6)))
    outcome = Outcome(total / max(count, 1), count, norm, layers)
    if outcome.finite:
        learner.updater.step()
    model.zero_grad()
    return outcome


def measure_layers(model: nn.Module, share: float) -> dict[str, float]:
    """The length of a share of the gradient of each layer: `encoder.blocks.0`, `encoder.blocks.1`, …, `head`."""
    squares: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            parts = name.split(".")
            numbered = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
            layer = ".".join(parts[: numbered + 1])
            squares[layer] = squares.get(layer, 0.0) + float(gather(parameter.grad.square().sum()))
    return {layer: share * math.sqrt(square) for layer, square in squares.items()}
