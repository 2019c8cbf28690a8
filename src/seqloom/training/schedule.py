"""How much training there is to do, how much is done, and the learning rate on the way.

The rate is a share of its peak, from the step and how much of the budget is spent:

    warm-up       (t + 1)/w                                                     for the first w steps
    stable-decay  1, then down in a line to 0 over the last 40% of the budget   Hägele et al. 2024
    linear        1 − p
    cosine        (1 + cos πp)/2                                                Loshchilov & Hutter 2017
    inverse-sqrt  √(w/t)                                                        Vaswani et al. 2017, §5.3
    plateau       ½^r, r how often the validation stood still
    constant      1

t counts steps from 0, p is the share of the budget spent.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from seqloom.config.train import TrainConfig

Schedule = Literal["stable-decay", "linear", "cosine", "inverse-sqrt", "plateau", "constant"]
_DECAY = 0.4


def rate_at(kind: Schedule, *, step: int, spent: float, warmup: int, plateaus: int = 0) -> float:
    """The share of the peak rate to use at a step."""
    rising = (step + 1) / warmup if step < warmup else 1.0
    match kind:
        case "stable-decay":
            falling = min(1.0, (1.0 - spent) / _DECAY)
        case "linear":
            falling = 1.0 - spent
        case "cosine":
            falling = (1.0 + math.cos(math.pi * spent)) / 2.0
        case "inverse-sqrt":
            falling = math.sqrt(max(warmup, 1) / max(step, warmup, 1))
        case "plateau":
            falling = 0.5**plateaus
        case "constant":
            falling = 1.0
        case _ as unreachable:
            assert_never(unreachable)
    return min(rising, max(falling, 0.0))


@dataclass
class Progress:
    """How far a training has come. All of it is saved; nothing else about the past matters."""

    step: int = 0
    predictions: int = 0
    seconds: float = 0.0
    best_score: list[float] | None = None
    best_step: int = 0
    judged: int = 0
    """The step of the last validation."""
    stale: int = 0
    """Validations in a row that brought nothing better."""
    plateaus: int = 0
    """How often two validations in a row brought nothing better."""
    skipped: int = 0
    """Steps in a row whose gradient was not finite."""
    parts: int = 1
    """Into how many parts each rank cuts its share of a batch; doubled when the memory does not suffice."""
    scale: float = 1.0
    """What losses are multiplied by on their way back, to keep small gradients within the range of float16."""
    unbroken: int = 0
    """Steps since the scale was last changed."""
    data: str = ""
    """The fingerprint of the training data."""
    log_size: int = 0
    """How long the log was: what came after will come again."""

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Progress":
        """As it was saved."""
        return cls(**state)


@dataclass(frozen=True)
class Pace:
    """How fast a machine trains."""

    seconds: float
    """A step takes."""
    predictions: float
    """A step makes."""


class Budget:
    """Steps, epochs, predicted tokens or minutes: whichever was given, as a share from 0 to 1."""

    def __init__(self, config: TrainConfig, steps_per_epoch: int) -> None:
        self._config, self._steps_per_epoch = config, steps_per_epoch
        amount, unit = config.budget
        self.steps = {"steps": int(amount), "epochs": max(1, round(amount * steps_per_epoch))}.get(unit)

    def spent(self, progress: Progress) -> float:
        """The share that is used up."""
        if self._config.tokens is not None:
            return progress.predictions / self._config.tokens
        if self._config.minutes is not None:
            return progress.seconds / (60.0 * self._config.minutes)
        assert self.steps is not None
        return progress.step / self.steps

    def describe(self, progress: Progress) -> str:
        """How many epochs are done, and how many there will be at this pace."""
        done, spent = progress.step / self._steps_per_epoch, self.spent(progress)
        if not spent:
            return f"epoch {done:.1f}"
        return f"epoch {done:.1f} of {'' if self.steps else 'about '}{done / min(spent, 1.0):.3g}"

    def count_steps(self, pace: Pace) -> float:
        """How many steps it is about."""
        amount, unit = self._config.budget
        if unit == "minutes":
            return 60.0 * amount / pace.seconds
        return self.steps or amount / pace.predictions
