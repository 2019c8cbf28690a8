"""How much training there is to do, and how much of it is done."""

from dataclasses import dataclass
from typing import Any

from seqloom.config.train import TrainConfig


@dataclass
class Progress:
    """How far a training has come. All of it is saved; nothing else about the past matters."""

    step: int = 0
    predictions: int = 0
    seconds: float = 0.0
    best_score: list[float] | None = None
    best_step: int = 0
    judged: int = 0
    """The step of the last look at the validation data."""
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


class Budget:
    """Steps, epochs, predicted tokens or minutes: whichever was given, as a share from 0 to 1."""

    def __init__(self, config: TrainConfig, steps_per_epoch: int) -> None:
        self._config = config
        epochs = config.epochs
        if epochs is None and config.steps is None and config.tokens is None and config.minutes is None:
            epochs = 10.0
        self.steps = config.steps if epochs is None else max(1, round(epochs * steps_per_epoch))

    def spent(self, progress: Progress) -> float:
        """The share that is used up."""
        if self._config.tokens is not None:
            return progress.predictions / self._config.tokens
        if self._config.minutes is not None:
            return progress.seconds / (60.0 * self._config.minutes)
        assert self.steps is not None
        return progress.step / self.steps
