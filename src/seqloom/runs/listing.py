"""What runs there are below a folder, how good each is, how long it took, and whether it can be resumed."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqloom.errors import ConfigError
from seqloom.runs.checkpoint import list_checkpoints
from seqloom.runs.curves import Curves, Validation
from seqloom.runs.log import read_log
from seqloom.runs.run import hold
from seqloom.tasks import TASKS, Config, Task
from seqloom.tasks.base import Judge
from seqloom.tasks.configuration import load_resolved, read_text, read_toml

State = Literal["finished", "in training", "resumable", "not started", "unreadable"]


@dataclass(frozen=True)
class Best:
    """The best validation of a run."""

    metric: str
    value: float
    step: int
    sample: str = ""
    """Which records it is of, where those are not all."""


@dataclass(frozen=True)
class Listed:
    """A run, as far as its folder tells."""

    folder: str
    state: State
    task: str | None = None
    family: str | None = None
    """Of the encoder and of the decoder, where they differ."""
    size: str | None = None
    best: Best | None = None
    """None where nothing was validated."""
    steps: int | None = None
    minutes: float | None = None
    """The time that training and validation took; None where the folder does not say."""


def list_runs(folder: Path) -> Iterator[Listed]:
    """Every run below a folder, or the folder itself, in the order of their names."""
    for path, folders, files in os.walk(folder):
        folders.sort()
        if "config.toml" in files and (found := _describe(Path(path))) is not None:
            folders.clear()
            yield found


def list_neighbours(run: Path) -> list[tuple[Path, str]]:
    """The other runs in the folder of a run, and the task of each, in the order of their names."""
    run = run.resolve()
    found = []
    for folder in sorted(run.parent.iterdir()):
        with suppress(ConfigError):
            task = read_toml(read_text(folder / "config.toml"), str(folder)).get("task") if folder != run else None
            found += [(folder, str(task))] if task in TASKS and (folder / "log.jsonl").exists() else []
    return found


def _describe(folder: Path) -> Listed | None:
    """A run; None for a folder whose config.toml belongs to something else."""
    path = folder / "config.toml"
    try:
        if read_toml(read_text(path), str(path)).get("task") not in TASKS:
            return None
        config = load_resolved(path)
    except ConfigError:
        return Listed(str(folder), "unreadable")
    newest = _find_newest(folder)
    speed = [line for line in read_log(folder / "speed.jsonl") if "seconds" in line][-1:]
    last: dict[str, Any] = max([newest, *speed], key=lambda one: one.get("step", 0))
    return Listed(
        str(folder),
        find_state(folder, resumable=bool(newest)),
        config.task,
        name_family(config),
        config.size if isinstance(config, Task) else None,
        _find_best(folder, config) if isinstance(config, Task) else None,
        last.get("step"),
        last["seconds"] / 60.0 if "seconds" in last else None,
    )


def find_state(folder: Path, *, resumable: bool) -> State:
    """Whether a run is being trained, is finished, or can go on."""
    if _is_locked(folder / "lock"):
        return "in training"
    if (folder / "manifest.json").exists() or (folder / "vectors.bin").exists():
        return "finished"
    return "resumable" if resumable else "not started"


def _is_locked(path: Path) -> bool:
    try:
        with path.open("r+", encoding="utf-8") as file:
            hold(file)
    except BlockingIOError:
        return True
    except OSError:  # there is none, or it belongs to somebody else
        return False
    return False


def _find_newest(folder: Path) -> dict[str, Any]:
    """How far the newest checkpoint came."""
    for checkpoint in reversed(list_checkpoints(folder / "checkpoints")):
        with suppress(OSError, ValueError):
            state: dict[str, Any] = json.loads((checkpoint / "state.json").read_bytes())
            return state
    return {}


def _find_best(folder: Path, task: Task) -> Best | None:
    curves, judge = Curves(), Judge(task, read_labels(folder))
    curves.add(read_log(folder / "log.jsonl"))
    best = curves.find_best(judge)
    return None if best is None else describe_best(best, judge)


def describe_best(best: Validation, judge: Judge) -> Best:
    """The best validation by the measure that chose it."""
    sample = "" if judge.name in ("loss", "perplexity") else str(best.line.get("sample", ""))
    return Best(judge.name, best.measures[judge.name], best.step, sample)


def read_labels(folder: Path) -> Sequence[str]:
    """The labels of a run; none where it has none, or none yet."""
    with suppress(OSError, ValueError):
        return tuple(map(str, json.loads((folder / "labels.json").read_bytes())))
    return ()


def name_family(config: Config) -> str | None:
    """The families of the stacks of a model; None where it has none."""
    stacks = [getattr(getattr(config, "model", None), name, None) for name in ("encoder", "decoder")]
    return " and ".join(dict.fromkeys(stack.family for stack in stacks if stack is not None)) or None
