"""A run is a folder.

config.toml  tokenizer.json  labels.json  model.safetensors  manifest.json    what a finished run is used by
seen.json    what it has to know of the data it was trained on; a model from elsewhere has none
log.jsonl    what happened, the same at every repetition
speed.jsonl  how fast it was, different every time
treated-records.tsv                                                           every record left out, cut or split
checkpoints/step-00000500/ …                                                  what an unfinished run resumes from
data/        the encoded corpus, where it came from and what the checks found; may be deleted at any time
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from safetensors.torch import save
from torch import Tensor, nn

from seqloom.config.data import ParallelData
from seqloom.config.dump import dump
from seqloom.config.train import TrainConfig
from seqloom.errors import RunError
from seqloom.files import write_whole
from seqloom.runs.checkpoint import remove_partial, write_files
from seqloom.runs.machine import Conditions
from seqloom.tasks import Config, Task
from seqloom.tasks.configuration import load_resolved
from seqloom.types import Seen


class Run:
    """Where a run keeps its things. Of several processes that train it, all read and one writes."""

    def __init__(self, folder: str | Path, *, writes: bool = True) -> None:
        self.folder = Path(folder)
        """The folder of the run; `seqloom.load` opens it."""
        self.writes = writes
        """Whether this process writes to the folder."""
        self.checkpoints = self.folder / "checkpoints"
        """The folder of the checkpoints, from which an unfinished run is resumed."""
        self.data = self.folder / "data"
        """The folder of the encoded corpus."""
        self.treated = self.folder / "treated-records.tsv"
        """The file that lists every record which was left out, cut or split, if there were any."""
        self.weights = self.folder / "model.safetensors"
        """The file of the weights of a finished run."""
        self.log = Log(self.folder / "log.jsonl", writes)
        """The losses, metrics and events of the training, which are the same at every repetition."""
        self.speed = Log(self.folder / "speed.jsonl", writes)
        """The speed of the training, which differs from one repetition to the next."""

    def __repr__(self) -> str:
        known = {"manifest.json": "finished", "config.toml": "not finished"}
        state = next((state for name, state in known.items() if (self.folder / name).exists()), "not started")
        return f"<seqloom.Run {self.folder}: {state}>"

    def record_config(self, config: Config) -> None:
        """Write the configuration, or check that it is the one that is there."""
        path = self.folder / "config.toml"
        text = dump(config)
        there = load_resolved(path) if path.exists() else config
        if _strip_machine(there) != _strip_machine(config):
            changed = [key for key in type(there).model_fields if getattr(there, key) != getattr(config, key, None)]
            raise RunError(
                f"{self.folder} holds a run with another configuration; what differs: {', '.join(changed)}. "
                "Give this one a folder of its own (out)"
            )
        if not self.writes:
            return
        try:
            write_whole(path, text.encode())
        except OSError as error:
            raise RunError(f"{self.folder}: cannot be written: {error}; choose another folder (out)") from None

    def record_found(self, labels: tuple[str, ...], seen: Seen | None) -> None:
        """Write what was found in the data: with it a training that was stopped can be used."""
        for name, content in _write_found(labels, seen).items() if self.writes else ():
            write_whole(self.folder / name, content)

    def note_base(self, base: Path) -> None:
        """Remember the folder that names of data are relative to, as seen from the run: both may move together."""
        if self.writes:
            (self.data / "base").write_text(os.path.relpath(base, self.folder), encoding="utf-8")

    def find_base(self) -> Path:
        """That folder; where the run does not know it any more, the current one."""
        note = self.data / "base"
        return Path(os.path.normpath(self.folder / note.read_text(encoding="utf-8"))) if note.exists() else Path()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second training out of the folder for as long as this one lives, and clear up after killed ones."""
        if not self.writes:
            yield
            return
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                hold(stack.enter_context((self.folder / "lock").open("w", encoding="utf-8")))
            except BlockingIOError:
                raise RunError(f"{self.folder} is being trained by another process; wait for it, or stop it") from None
            except OSError as error:
                raise RunError(f"{self.folder}: cannot be written: {error}; choose another folder (out)") from None
            remove_partial(self.folder)
            remove_partial(self.checkpoints)
            yield

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
            "tokenizer.json": (self.folder / "tokenizer.json").read_bytes(),
            "model.safetensors": save(dict(detach_parameters(model))),
        }
        write_files(self.folder, files | _write_found(labels, seen), conditions)


def read_seen(folder: Path) -> Seen | None:
    """What the training data of a run held; None if it does not say, as a model from elsewhere."""
    path = folder / "seen.json"
    if not path.exists():
        return None
    noted = json.loads(path.read_bytes())
    return Seen(tuple(noted.get("unseen", ())), noted["iob1"])


def _strip_machine(config: Config) -> Config:
    """What is trained, however it is computed and used: a run may be resumed on another machine."""
    if not isinstance(config, Task):
        return config
    usual = {name: TrainConfig.model_fields[name].default for name in _MAY_CHANGE}
    update: dict[str, Any] = {"train": config.train.model_copy(update=usual)}
    if isinstance(config.data, ParallelData):
        update["data"] = config.data.model_copy(update=dict.fromkeys(_USED_AFTERWARDS))
    return config.model_copy(update=update)


_MAY_CHANGE = ("threads", "device", "sharding", "recompute", "compile")
_USED_AFTERWARDS = ("source_language", "target_language", "source_unit")


def hold(file: IO[Any]) -> None:
    """Lock an open file until it is closed; BlockingIOError where another process holds it."""
    import portalocker  # takes long, and most commands lock nothing

    try:
        portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
    except portalocker.LockException:
        raise BlockingIOError(f"{file.name} is locked by another process") from None


class Log:
    """Lines of JSON."""

    def __init__(self, path: Path, writes: bool) -> None:
        self.path, self._writes = path, writes

    def add(self, **values: Any) -> None:
        """Append one line."""
        if not self._writes:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values, ensure_ascii=False) + "\n")

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def cut(self, size: int) -> None:
        """Forget what was written after `size` bytes: those steps will be taken again."""
        if self._writes and self.size > size:
            with self.path.open("r+b") as file:
                file.truncate(size)


def _write_found(labels: tuple[str, ...], seen: Seen | None) -> dict[str, bytes]:
    """The files with what was found in the data."""
    files = {"labels.json": json.dumps(labels, ensure_ascii=False).encode()}
    return files if seen is None else {**files, "seen.json": json.dumps(asdict(seen)).encode()}


def detach_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a model by name, shared ones once."""
    for name, parameter in model.named_parameters():
        yield name, parameter.detach().cpu().contiguous()
