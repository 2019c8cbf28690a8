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
    speed = _read_lines(folder / "speed.jsonl")[-1:]
    last: dict[str, Any] = max([newest, *speed], key=lambda one: one.get("step", 0))
    return Listed(
        str(folder),
        _find_state(folder, resumable=bool(newest)),
        config.task,
        _name_family(config),
        config.size if isinstance(config, Task) else None,
        _find_best(folder, config) if isinstance(config, Task) else None,
        last.get("step"),
        last["seconds"] / 60.0 if "seconds" in last else None,
    )


def _find_state(folder: Path, *, resumable: bool) -> State:
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
    labels: Sequence[str] = ()
    with suppress(OSError, ValueError):
        labels = json.loads((folder / "labels.json").read_bytes())
    judge = Judge(task, labels)
    seen = [line for line in _read_lines(folder / "log.jsonl") if judge.name in line.get("valid", {})]
    if not seen:
        return None
    best = max(seen, key=lambda line: judge.score(line["valid"]))
    sample = "" if judge.name in ("loss", "perplexity") else best.get("sample", "")
    return Best(judge.name, best["valid"][judge.name], best["step"], sample)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; the last one may be half written."""
    found = []
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="utf-8").splitlines():
            found.append(json.loads(line))  # what stands before a broken line is kept
    return found


def _name_family(config: Config) -> str | None:
    stacks = [getattr(getattr(config, "model", None), name, None) for name in ("encoder", "decoder")]
    return " and ".join(dict.fromkeys(stack.family for stack in stacks if stack is not None)) or None
