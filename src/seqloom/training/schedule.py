"""How the learning rate goes: a share of its peak, from the step and how much of the budget is spent.

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
from typing import Literal, assert_never

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
