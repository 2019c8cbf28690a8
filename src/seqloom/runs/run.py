"""A run is a folder.

config.toml  tokenizer.json  labels.json  model.safetensors  manifest.json    what a finished run is used by
             tokenizer.source.json and tokenizer.target.json, where each side has a tokeniser of its own
seen.json    what it has to know of the data it was trained on; a model from elsewhere has none
log.jsonl    what happened, the same at every repetition
speed.jsonl  how fast it was, different every time
treated-records.tsv                                                           every record left out, cut or split
checkpoints/step-00000500/ …  checkpoints/stopped-00000512/                   what an unfinished run resumes from
snapshots/step-00000000/ …    weights at evenly spaced steps, for looking inside; may be deleted at any time
data/        the encoded corpus, where it came from and what the checks found; may be deleted at any time
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from safetensors.torch import save
from torch import Tensor, nn

from seqloom.config.data import ParallelData
from seqloom.config.dump import dump
from seqloom.config.train import BUDGETS, TrainConfig
from seqloom.errors import RunError
from seqloom.files import write_whole
from seqloom.runs.checkpoint import remove_partial, write_files
from seqloom.runs.log import Log
from seqloom.runs.machine import Conditions, choose_device, choose_precision
from seqloom.tasks import Config, Task
from seqloom.tasks.configuration import load_resolved
from seqloom.text.files import find_files
from seqloom.types import Seen


class Run:
    """Where a run keeps its things."""

    folder: Path
    """The folder of the run; `seqloom.load` opens it."""
    checkpoints: Path
    """The folder of the checkpoints, from which an unfinished run is resumed."""
    snapshots: Path
    """The folder of the snapshots: weights at evenly spaced steps, for looking inside."""
    data: Path
    """The folder of the encoded corpus."""
    treated: Path
    """The file that lists every record which was left out, cut or split, if there were any."""
    weights: Path
    """The file of the weights of a finished run."""
    log: Log
    """The losses, metrics and events of the training, which are the same at every repetition."""
    speed: Log
    """The speed of the training, which differs from one repetition to the next."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self.snapshots = self.folder / "snapshots"
        self.data = self.folder / "data"
        self.treated = self.folder / "treated-records.tsv"
        self.weights = self.folder / "model.safetensors"
        self.log = Log(self.folder / "log.jsonl", writes=False)
        self.speed = Log(self.folder / "speed.jsonl", writes=False)

    def __repr__(self) -> str:
        known = {"manifest.json": "finished", "config.toml": "not finished"}
        state = next((state for name, state in known.items() if (self.folder / name).exists()), "not started")
        return f"<seqloom.Run {self.folder}: {state}>"

    @property
    def finished(self) -> bool:
        """Whether there is a model that a training has ended with."""
        return (self.folder / "manifest.json").exists()


class TrainingRun(Run):
    """A run that is being trained. Of several processes that train it, all read and one writes."""

    def __init__(self, folder: str | Path, *, writes: bool = True) -> None:
        super().__init__(folder)
        self.writes = writes
        """Whether this process writes to the folder."""
        self.log = Log(self.log.path, writes)
        self.speed = Log(self.speed.path, writes)

    def record_config(self, config: Config) -> Config:
        """Write the configuration, or check that it is the one that is there; returns what is to be trained.

        The machine and the budget may be others. A finished run keeps its configuration until its model is replaced.
        """
        path = self.folder / "config.toml"
        there = load_resolved(path) if path.exists() else config
        config = _settle_precision(_keep_former(config, there), there)
        wanted, found = (_strip(one).model_dump() for one in (config, there))
        if wanted != found:
            raise RunError(
                f"{self.folder} holds a run with another configuration; what differs: "
                f"{', '.join(_list_differences(wanted, found))}. Give this one a folder of its own with `out`"
            )
        if self.writes and not (self.finished and path.exists()):
            try:
                write_whole(path, dump(config).encode())
            except OSError as error:
                raise RunError(f"{self.folder}: cannot be written: {error}; choose another folder with `out`") from None
        return config

    def record_found(self, labels: tuple[str, ...], seen: Seen | None) -> None:
        """Write what was found in the data: with it a training that was stopped can be used."""
        for name, content in _write_found(labels, seen).items() if self.writes else ():
            write_whole(self.folder / name, content)

    def note_base(self, base: Path) -> None:
        """Remember the folder that names of data are relative to, as seen from the run: both may move together."""
        if self.writes:
            (self.data / "base").write_text(os.path.relpath(base, self.folder), encoding="utf-8")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second training out of the folder for as long as this one lives, and clear up after killed ones.

        If nothing could be trained, no new folder is left behind.
        """
        if not self.writes:
            yield
            return
        new = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                _hold_soon(stack.enter_context((self.folder / "lock").open("w", encoding="utf-8")))
            except BlockingIOError:
                raise RunError(f"{self.folder} is being trained by another process; wait for it, or stop it") from None
            except OSError as error:
                raise RunError(f"{self.folder}: cannot be written: {error}; choose another folder with `out`") from None
            for folder in (self.folder, self.checkpoints, self.snapshots):
                remove_partial(folder)
            try:
                yield
            except Exception:
                if new and not self.log.path.exists():
                    shutil.rmtree(self.folder, ignore_errors=True)
                    with suppress(OSError):  # another run may have come into it
                        for folder in new[1:]:
                            folder.rmdir()
                raise

    def finish(
        self,
        model: nn.Module,
        config: Task,
        labels: tuple[str, ...],
        conditions: Conditions,
        seen: Seen | None = None,
    ) -> None:
        """Write what the run is used by; the manifest, which vouches for all of it and says what made it, last."""
        files = {
            "config.toml": dump(config).encode(),
            **{file.name: file.read_bytes() for file in find_files(self.folder / "tokenizer.json")},
            "model.safetensors": save(dict(detach_parameters(model))),
        }
        write_files(self.folder, files | _write_found(labels, seen), conditions)


def find_base(folder: Path) -> Path:
    """The folder that names of a run's data are relative to; the current one where the run does not know it."""
    note = folder / "data" / "base"
    return Path(os.path.normpath(folder / note.read_text(encoding="utf-8"))) if note.exists() else Path()


def read_seen(folder: Path) -> Seen | None:
    """What the training data of a run held; None if it does not say, as a model from elsewhere."""
    path = folder / "seen.json"
    if not path.exists():
        return None
    noted = json.loads(path.read_bytes())
    return Seen(tuple(noted.get("unseen", ())), noted["iob1"])


def _strip(config: Config) -> Config:
    """What is trained, however it is computed, how long, and how it is used: a run may go on on another machine."""
    if not isinstance(config, Task):
        return config
    usual = {name: TrainConfig.model_fields[name].default for name in _MAY_CHANGE}
    update: dict[str, Any] = {"train": config.train.model_copy(update=usual)}
    if isinstance(config.data, ParallelData):
        update["data"] = config.data.model_copy(update=dict.fromkeys(_USED_AFTERWARDS))
    return config.model_copy(update=update)


_MAY_CHANGE = ("threads", "device", "precision", "sharding", "recompute", "compile", "snapshots", *BUDGETS)
_USED_AFTERWARDS = ("source_language", "target_language", "source_unit")
_FORMER = {"train": {"warmup": 200, "validate_every": 500, "save_every": 500}, "batch": {"tokens": 4096}}
"""What these were before they followed the budget and the data; a run that was started so stays so."""


def _keep_former(config: Config, there: Config) -> Config:
    if not isinstance(config, Task) or not isinstance(there, Task):
        return config
    sections = {}
    for section, values in _FORMER.items():
        now, then = getattr(config, section), getattr(there, section)
        former = {name: value for name, value in values.items() if getattr(then, name, None) == value}
        sections[section] = now.model_copy(update={k: v for k, v in former.items() if getattr(now, k) is None})
    return config.model_copy(update=sections)


def _settle_precision(config: Config, there: Config) -> Config:
    """The precision of this run: what it was begun with, or what `auto` takes here and the run then keeps."""
    if not isinstance(config, Task) or not isinstance(there, Task):
        return config
    wanted = there.train.precision if config.train.precision == "auto" else config.train.precision
    precision = choose_precision(wanted, choose_device(config.train.device))
    return config.model_copy(update={"train": config.train.model_copy(update={"precision": precision})})


def _list_differences(wanted: dict[str, Any], found: dict[str, Any], before: str = "") -> Iterator[str]:
    """The keys of two configurations that differ, with both values."""
    for key in {**found, **wanted}:
        one, other = wanted.get(key), found.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _list_differences(one, other, f"{before}{key}.")
        elif one != other:
            yield f"{before}{key} (the run has {_spell(other)}, not {_spell(one)})"


def _spell(value: Any) -> str:
    return "another table" if isinstance(value, dict | tuple) else "none" if value is None else repr(value)


def _hold_soon(file: IO[Any], tries: int = 5) -> None:
    """Lock a file that may be locked for a moment by somebody who only looks whether it is (`seqloom runs`, a page)."""
    for left in reversed(range(tries)):
        try:
            hold(file)
            return
        except BlockingIOError:
            if not left:
                raise
        time.sleep(0.05)


def hold(file: IO[Any]) -> None:
    """Lock an open file until it is closed; BlockingIOError where another process holds it."""
    import portalocker  # takes long, and most commands lock nothing

    try:
        portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
    except portalocker.LockException:
        raise BlockingIOError(f"{file.name} is locked by another process") from None


def _write_found(labels: tuple[str, ...], seen: Seen | None) -> dict[str, bytes]:
    """The files with what was found in the data."""
    files = {"labels.json": json.dumps(labels, ensure_ascii=False).encode()}
    return files if seen is None else {**files, "seen.json": json.dumps(asdict(seen)).encode()}


def detach_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a model by name, shared ones once."""
    for name, parameter in model.named_parameters():
        yield name, parameter.detach().cpu().contiguous()
