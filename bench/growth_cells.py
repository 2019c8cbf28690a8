"""What the cells of bench/growth.py measure in a model: steps of training, and passes that only score.

Each cell is measured in a process of its own, on one thread. Seconds are of its processor time. Megabytes are the peak
of its resident set above what it held before: PyTorch, our modules, and the kernels of a tiny model that ran once.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from seqloom.cli.process import disable_trimming
from seqloom.tasks import TASKS
from seqloom.tasks.configuration import validate
from seqloom.training.distributed import ProcessGroup
from seqloom.training.step import Learner, take_step
from seqloom.types import TokenBatch

Found = dict[str, float]
ROWS, ROW, VOCAB = 16, 128, 1000
LONG = 1100  # tokens of a text that is computed like the longest ones
LEAST = 1.0  # seconds that are measured at least, unless one step takes longer
POSITIONS: dict[str, dict[str, Any]] = {
    "rotary": {"positions": "rotary"},
    "ALiBi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "window of 256": {"positions": "rotary", "window": 256},
    "LSTM": {"family": "recurrent"},
}


@contextmanager
def watch_memory() -> Iterator[Found]:
    """Megabytes at the peak and at the end, above what was resident before (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")
    before, found = _status("VmRSS"), Found()
    yield found
    found |= {"peak": (_status("VmHWM") - before) / 1e3, "kept": (_status("VmRSS") - before) / 1e3}


def _status(key: str) -> float:
    """Thousands of bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1.024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


def clock(function: Callable[[], object]) -> float:
    """Seconds of this process's processor time."""
    started = time.process_time()
    function()
    return time.process_time() - started


def clock_again(function: Callable[[], object]) -> float:
    """Seconds of one call, after a first one that may have to prepare; a long first one counts itself."""
    first, taken = clock(function), list[float]()
    while first <= LEAST and sum(taken) < LEAST:
        taken.append(clock(function))
    return sum(taken) / len(taken) if taken else first


def build_learner(vocabulary: int, group: ProcessGroup | None = None, **stack: Any) -> Learner:
    """A language model that is trained as `seqloom train` trains by default, without dropout."""
    said = {
        "data": {"train": TASKS["language-model"].example_files},
        "model": {"decoder": {"family": "transformer", "num_layers": 2, "dropout": 0.0, **stack}},
    }
    said["model"]["embedding_dropout"] = 0.0
    config = validate(said, TASKS["language-model"], "", "bench")
    return Learner(config.model.build(vocabulary).train(), config, group or ProcessGroup())


def make_batch(rows: int, length: int, vocabulary: int) -> TokenBatch:
    """Random tokens."""
    ids = torch.randint(4, vocabulary, (rows, length), generator=torch.Generator().manual_seed(0))
    return TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool))


def measure_steps(vocabulary: int, rows: int, length: int, *, scoring: bool = False, **stack: Any) -> Found:
    """Processor time of a step, or of a pass without gradients, and the memory of everything it takes."""
    disable_trimming()
    tiny = {"model_dim": 16, "num_layers": 1} | ({"num_heads": 2} if "num_heads" in stack else {})
    take_step(build_learner(50, **{**stack, **tiny}), [make_batch(1, min(length, LONG), 50)], 1)
    with watch_memory() as found:
        learner = build_learner(vocabulary, **stack)
        batch, count = make_batch(rows, length, vocabulary), 0

        def step() -> None:
            nonlocal count
            count += 1
            if scoring:
                with torch.no_grad():
                    learner.objective(batch)
            else:
                take_step(learner, [batch], count)

        found["seconds"] = clock_again(step)
    found["weights"] = sum(weight.numel() for weight in learner.model.parameters())
    return found


def measure_length(variant: str, size: int, _: Path) -> Found:
    """One text of so many tokens, by a small model."""
    what, _, kind = variant.partition(", ")
    stack = POSITIONS[kind]
    heads = {} if "family" in stack else {"num_heads": 4}
    return measure_steps(256, 1, size, scoring=what == "scoring", model_dim=64, **heads, **stack)


def measure_width(variant: str, size: int, _: Path) -> Found:
    """Two layers of this width."""
    if variant == "LSTM":
        return measure_steps(VOCAB, ROWS, ROW, model_dim=size, family="recurrent")
    return measure_steps(VOCAB, ROWS, ROW, model_dim=size, num_heads=size // 32)


def measure_depth(_: str, size: int, __: Path) -> Found:
    """So many layers."""
    return measure_steps(VOCAB, ROWS, ROW, model_dim=128, num_heads=4, num_layers=size)


def measure_vocabulary(_: str, size: int, __: Path) -> Found:
    """So many different tokens."""
    return measure_steps(size, ROWS, ROW, model_dim=128, num_heads=4)
