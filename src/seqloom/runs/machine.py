"""What the bits of a training depend on, besides its configuration and its data.

Sums of floating-point numbers depend on their order, and the order on the kernels, the instruction set of the
processor, the number of threads and the versions of the programs. The same numbers come out again where all of these
are the same; a manifest records them, and a training that is resumed elsewhere says what differs. Its manifests then
list the earlier conditions, too, each with the step until which it was trained under them.
"""

import platform
import sys
from collections.abc import Sequence
from typing import Any, Literal

import torch

from seqloom import __version__
from seqloom.config.train import TrainConfig
from seqloom.errors import ConfigError
from seqloom.native.library import describe, has_bfloat16

Conditions = dict[str, Any]
Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
_NAMES = {"seqloom": "Seqloom", "torch": "PyTorch"}


def choose_device(wanted: Device, number: int = 0, *, key: str = "train.device") -> torch.device:
    """The device that was asked for; `auto` is the best one there is. Of several GPUs, the one with this number."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(name for name, available in there.items() if available) if wanted == "auto" else wanted
    if not there[kind]:
        raise ConfigError(f'{key}: this machine has no {kind}; use "auto" or "cpu"')
    if kind == "cuda" and number >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"{key}: process {number + 1} of this machine has no GPU; start at most {count}, one for each"
        )
    return torch.device(kind, number) if kind == "cuda" else torch.device(kind)


def choose_precision(wanted: Precision, device: torch.device) -> Precision:
    """The precision that was asked for; `auto` is bfloat16 on a processor that has instructions for it.

    It follows the processor and the kernels, never a measurement: it changes the bits. Without its instructions, a
    processor computes in bfloat16 some hundred times more slowly, so that is refused.
    """
    if device.type != "cpu" or wanted not in ("auto", "bfloat16"):
        return "float32" if wanted == "auto" else wanted
    if wanted == "bfloat16" and not has_bfloat16():
        raise ConfigError(
            f'train.precision = "bfloat16" needs a processor and kernels that have it, and here {_explain_level()}; '
            "train.precision=float32 computes everywhere, and a run that was begun goes on with it"
        )
    return "bfloat16" if has_bfloat16() else "float32"


def explain_precision(device: torch.device) -> str:
    """What `auto` takes, and why."""
    chosen = choose_precision("auto", device)
    if device.type != "cpu":
        return f"{chosen}, because this computes on {_name_device(device)}"
    has = "the processor and the kernels have it" if chosen == "bfloat16" else _explain_level()
    return f"{chosen}, because {has}"


def _explain_level() -> str:
    kernels = describe()
    return kernels.reason.rstrip(".").replace("The kernels", "the kernels", 1) + (
        "" if kernels.level is None else ", and they do without it"
    )


def describe_machine() -> Conditions:
    """The versions, the kernels, the processor's instruction set and the threads of this process."""
    return {
        "seqloom": __version__,
        "torch": torch.__version__,
        "kernels": describe().level or "none",
        "instructions": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
    }


def describe_training(
    config: TrainConfig, processes: int, device: torch.device, earlier: Sequence[Conditions] = ()
) -> Conditions:
    """The same, how the training was configured to compute, and the conditions of earlier steps, if those differed."""
    return {
        **describe_machine(),
        "precision": config.precision,
        "device": _name_device(device),
        "processes": processes,
        "sharding": config.sharding,
        "compile": "on" if config.compile else "off",
        **({"earlier": [*earlier]} if earlier else {}),
    }


def list_earlier(earlier: Sequence[Conditions], step: int, then: Conditions, now: Conditions) -> list[Conditions]:
    """The earlier conditions of a training that had come to a step under some, and goes on under others."""
    known = {key: then[key] for key in now if key in then}
    begun = max((one["until_step"] for one in earlier), default=0)
    return [*earlier, {"until_step": step, **known}] if known != now and step > begun else [*earlier]


def measure_memory(device: torch.device) -> int | None:
    """The most bytes that this process has held so far, on a GPU or in main memory; None where the system hides it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # what ru_maxrss counts in
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def explain_kernels(device: torch.device) -> str:
    """Which kernels run, and why, for a person to read."""
    if device.type != "cpu":
        return f"none, because they are for processors and this computes on {_name_device(device)}"
    kernels = describe()
    count = torch.get_num_threads()
    text = f"{kernels.level or 'none'}, {count} {'thread' if count == 1 else 'threads'}. {kernels.reason}"
    return text if kernels.level else f"{text} Everything works, more slowly."


def explain_difference(then: Conditions, now: Conditions) -> str | None:
    """Why a training does not end with the bits of an unbroken one; None where it does."""
    differing = [key for key in now if then.get(key) != now[key]]
    if not differing:
        return None
    before, after = (
        " and ".join(f"{_NAMES.get(key, key)} {conditions.get(key, 'unknown')}" for key in differing)
        for conditions in (then, now)
    )
    return f"not bit-identical from here, because the checkpoint was written with {before}, and this is {after}"


def _name_device(device: torch.device) -> str:
    return f"cuda {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type
