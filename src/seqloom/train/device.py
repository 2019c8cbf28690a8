"""Where a training computes, and how its batches get there."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from seqloom.errors import ConfigError

B = TypeVar("B")


Device = Literal["auto", "cpu", "cuda", "mps"]


def choose_device(wanted: Device, number: int = 0, *, key: str = "train.device") -> torch.device:
    """The device that was asked for; `auto` is the best one there is. Of several GPUs, the one with this number."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(name for name, available in there.items() if available) if wanted == "auto" else wanted
    if not there[kind]:
        raise ConfigError(f'{key}: this machine has no {kind}; use "auto" or "cpu"')
    return torch.device(kind, number) if kind == "cuda" else torch.device(kind)


def move(batch: B, device: torch.device) -> B:
    """A batch with all its tensors on a device."""
    if device.type == "cpu":
        return batch
    return replace(batch, **{f.name: _move(getattr(batch, f.name), device) for f in fields(batch)})  # type: ignore[type-var, arg-type]


def _move(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    return move(value, device) if is_dataclass(value) else value
