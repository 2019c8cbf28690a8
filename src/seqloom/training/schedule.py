"""How much training there is to do, how much is done, and the learning rate on the way.

The rate is a share of its peak, from the step and how much of the budget is spent:

    warm-up       (t + 1)/w                                                     for the first w steps
    stable-decay  1, then down in a line to 0 over the last 40% of the budget   Hägele et al. 2024
    linear        1 − p
    cosine        (1 + cos πp)/2                                                Loshchilov & Hutter 2017
    inverse-sqrt  √(w/t)                                                        Vaswani et al. 2017, §5.3
    plateau       ½^r, r how often the validation stood still
    constant      1

t counts steps from 0, p is the share of the budget spent. Unless they are given, the warm-up and the steps between two
validations or checkpoints follow the budget, so that every schedule fits into it. Unless it is given, the budget is ten
epochs, or as many as make a thousand steps.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Self, assert_never

from seqloom.config.train import BUDGETS, Amount, TrainConfig

Schedule = Literal["stable-decay", "linear", "cosine", "inverse-sqrt", "plateau", "constant"]
_DECAY = 0.4
_FLAT = {"stable-decay": 1.0 - _DECAY, "linear": 0.0, "cosine": 0.0}
"""The share of the budget after which the rate goes down because of the budget; never, if it is not here."""
_EPOCHS, _FEWEST_STEPS = 10, 1000
"""The budget, unless it is given: so many epochs, or as many as make so many steps."""
_WARM_UP, _LONGEST_WARM_UP = 0.05, 200
"""The share of the budget, and the most steps, over which the rate rises unless `train.warmup` says so."""
_STAGES, _SHORTEST, _LONGEST = 10, 10, 500
"""How many validations and checkpoints a budget has, and the fewest and the most steps between two."""
_LONGEST_MINUTES, _LONGEST_TOKENS = 5.0, 2_000_000
_VALIDATING = 0.15
"""The share of its time that a training by the clock may spend on validations, but for the last."""


def rate_at(kind: Schedule, *, step: int, spent: float, warmup: float, plateaus: int = 0) -> float:
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
    budget: dict[str, float] = field(default_factory=dict)
    """The budget of the training, such as {"steps": 1000}; empty in checkpoints of old versions."""
    stage: int = 0
    """The last of the budget's stages that ended with a validation or a checkpoint."""
    warmup: int | None = None
    """Over how many steps the rate rises; None as long as only the clock knows."""
    validating: float = 0.0
    """Seconds of validations."""
    flat: int = 0
    """The step of the last regular checkpoint before the rate goes down; 0 if there is none."""
    risen: int = 0
    """The step from which the rate last began to rise: 0, or where a larger budget was given after it had gone down."""
    risen_spent: float = 0.0
    """The share of the budget that was spent at that step."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """Other conditions under which earlier steps were taken, the oldest first: each `until_step`, and what it was."""

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
        self.amount = config.budget or Amount(float(max(_EPOCHS, math.ceil(_FEWEST_STEPS / steps_per_epoch))), "epochs")
        """How much of what."""
        self._whole, self._kind = self.amount
        self.given = {self._kind: self._whole}
        """The kind of budget, and how much of it there is."""
        self.steps = {"steps": int(self._whole), "epochs": max(1, round(self._whole * steps_per_epoch))}.get(self._kind)
        """How many steps that is, where it can be known."""
        self.flat = _FLAT.get(config.schedule, math.inf)
        """The share after which the rate goes down."""
        self.stages = self._count_stages()
        """Into how many parts it is cut by validations and checkpoints, unless they have steps of their own."""

    def of(self, config: TrainConfig) -> Self:
        """The budget of another configuration, on the same data."""
        return type(self)(config, self._steps_per_epoch)

    def replace(self, given: dict[str, float]) -> Self:
        """Another budget of the same training."""
        return self.of(self._config.model_copy(update={**dict.fromkeys(BUDGETS), **given}))

    def spent(self, progress: Progress) -> float:
        """The share that is used up."""
        if self.steps is not None:
            return progress.step / self.steps
        used = progress.predictions if self._kind == "tokens" else progress.seconds / 60.0
        return used / self._whole

    def stage(self, progress: Progress) -> int:
        """How many stages are over."""
        return int(self.stages * self.spent(progress) + 1e-9)

    def affords_validation(self, progress: Progress) -> bool:
        """Whether validations have not taken too much of the time so far, where time is what is given."""
        return self._kind != "minutes" or progress.validating <= _VALIDATING * progress.seconds

    def count_warmup(self, progress: Progress) -> int | None:
        """Over how many steps the rate rises from here; None where only the clock will tell."""
        if self._config.warmup is not None:
            return self._config.warmup
        if self.steps is None:
            return None
        return min(_LONGEST_WARM_UP, math.ceil(_WARM_UP * (self.steps - progress.step)))

    def rate(self, progress: Progress) -> float:
        """The share of the peak rate to use at the next step."""
        step, spent = progress.step - progress.risen, self.spent(progress)
        spent = (spent - progress.risen_spent) / (1.0 - progress.risen_spent)
        warmup: float | None = progress.warmup
        if warmup is None:
            share = max((step + 1) / _LONGEST_WARM_UP, spent / _WARM_UP)
            warmup = (step + 1) / share
            progress.warmup = step if share >= 1.0 else None
        return rate_at(self._config.schedule, step=step, spent=spent, warmup=warmup, plateaus=progress.plateaus)

    def __str__(self) -> str:
        return f"{self.amount} ({self.steps:,} steps)" if self._kind == "epochs" else str(self.amount)

    def plan(self, progress: Progress, *, validates: bool) -> str:
        """The budget, the warm-up, and how often there is a validation and a checkpoint, for a person to read."""
        warmup = f"the first {_WARM_UP:.0%} of it, but at most {_LONGEST_WARM_UP} steps"
        known = self._config.warmup if progress.warmup is None else progress.warmup
        if known is not None:
            warmup = "1 step" if known == 1 else f"{known:,} steps"
        every = {"checkpoint": self._every(self._config.save_every)}
        if validates:
            every = {"validation": self._every(self._config.validate_every), **every}
        if len({*every.values()}) == 1:
            every = {" and a ".join(every): every["checkpoint"]}
        return "; ".join(
            [f"{self}; warm-up over {warmup}", *(f"a {what} every {when}" for what, when in every.items())]
        )

    def describe(self, progress: Progress) -> str:
        """How many epochs are done, and how many there will be at this pace."""
        done, spent = progress.step / self._steps_per_epoch, self.spent(progress)
        if not spent:
            return f"epoch {done:.1f}"
        return f"epoch {done:.1f} of {'' if self.steps else 'about '}{done / min(spent, 1.0):.3g}"

    def count_steps(self, pace: Pace) -> float:
        """How many steps it is about."""
        if self._kind == "minutes":
            return 60.0 * self._whole / pace.seconds
        return self.steps or self._whole / pace.predictions

    def _every(self, given: int | None) -> str:
        if given is not None or self.steps is not None:
            steps = given or math.ceil((self.steps or 1) / self.stages)
            return "step" if steps == 1 else f"{steps:,} steps"
        part = self._whole / self.stages
        return f"{part:,.0f} tokens" if self._kind == "tokens" else f"{60.0 * part:,.0f} seconds"

    def _count_stages(self) -> int:
        if self.steps is not None:
            return max(1, min(_STAGES, self.steps // _SHORTEST), math.ceil(self.steps / _LONGEST))
        longest = _LONGEST_TOKENS if self._kind == "tokens" else _LONGEST_MINUTES
        return max(_STAGES, math.ceil(self._whole / longest))
