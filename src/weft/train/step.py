"""One update of the weights: the whole of training, on one screen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from weft.config.train import TrainConfig
from weft.train.device import move
from weft.train.objectives import Batch, compute_loss
from weft.train.optim import Updater
from weft.train.seed import derive_seed

_LOOK_EVERY = 100


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


def take_step(model: nn.Module, updater: Updater, parts: Sequence[Batch], config: TrainConfig, step: int) -> Outcome:
    """Add up the gradients of all parts of a batch, divide by its predictions, clip, update."""
    total, count = 0.0, 0
    device = next(model.parameters()).device
    for index, part in enumerate(parts):
        torch.manual_seed(
            derive_seed(config.seed, step, index)
        )  # dropout is a function of these three, so resuming is exact
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            loss = compute_loss(model, move(part, device), smoothing=config.label_smoothing)
        loss.total.backward()
        total, count = total + float(loss.total.detach()), count + loss.count
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    torch._foreach_div_(gradients, float(max(count, 1)))
    layers = measure_layers(model) if step % _LOOK_EVERY == 0 else {}
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), config.clip))
    outcome = Outcome(total / max(count, 1), count, norm, layers)
    if outcome.finite:
        updater.step()
    model.zero_grad()
    return outcome


def measure_layers(model: nn.Module) -> dict[str, float]:
    """The length of the gradient of each layer: `encoder.blocks.0`, `encoder.blocks.1`, …, `head`."""
    squares: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            parts = name.split(".")
            numbered = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
            layer = ".".join(parts[: numbered + 1])
            squares[layer] = squares.get(layer, 0.0) + float(parameter.grad.square().sum())
    return {layer: math.sqrt(square) for layer, square in squares.items()}
