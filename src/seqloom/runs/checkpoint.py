"""Checkpoints that are whole or not there.

A checkpoint is a folder of safetensors and JSON, no pickles. It is written under a temporary name, every file flushed
to the disk, the manifest with the SHA-256 of every file last, then renamed, and the parent folder flushed. Reading
verifies every hash: what was cut short or changed is found out, and the one before it is used.

step-00000500      saved where every training of this configuration saves: these may be chosen or averaged at the end
stopped-00000512   saved because the training was told to stop: only to resume from, and gone with the next save

A snapshot is written in the same way, in the run's folder `snapshots`. It has weights only, as a model in use has them
but for adapters, which are beside what they adapt: nothing can be resumed from it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from seqloom import __version__
from seqloom.errors import RunError
from seqloom.files import flush_folder, hash_file, write_flushed, write_whole
from seqloom.runs.machine import Conditions

FORMAT = 2
AVERAGE = "average/"
"""What the names of averaged weights begin with, among what the optimizer keeps."""
_MANIFEST = "manifest.json"
Tensors = dict[str, Tensor]


class FormatError(RunError):
    """A folder is whole, but of a format that this version does not read."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to resume as if nothing had happened."""

    model: Tensors
    optimizer: Tensors
    state: dict[str, Any]
    conditions: Conditions
    """What its bits rest on: versions, kernels, processor, threads, precision."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; if anything goes wrong, nothing of it stays."""
    files = {
        "model.safetensors": save(_contiguous(checkpoint.model)),
        "optimizer.safetensors": save(_contiguous(checkpoint.optimizer)),
        "state.json": _json(checkpoint.state),
    }
    write_folder(folder, files, checkpoint.conditions)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read and verify a checkpoint."""
    conditions = verify_folder(folder)
    state = json.loads((folder / "state.json").read_bytes())
    model, optimizer = (load_tensors(folder / f"{name}.safetensors") for name in ("model", "optimizer"))
    return Checkpoint(model, optimizer, state, conditions)


def save_snapshot(folder: Path, weights: Tensors, state: dict[str, Any], conditions: Conditions) -> None:
    """Write a snapshot; `state` says how far the training had come."""
    write_folder(folder, {"model.safetensors": save(_contiguous(weights)), "state.json": _json(state)}, conditions)


def is_snapshot(folder: Path) -> bool:
    """Whether a folder of weights has nothing to resume from."""
    return not (folder / "optimizer.safetensors").exists()


def load_tensors(path: Path) -> Tensors:
    """The tensors of a safetensors file."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None


def name_checkpoint(checkpoints: Path, step: int, *, stopped: bool = False) -> Path:
    """The folder of the checkpoint of a step."""
    return checkpoints / f"{'stopped' if stopped else 'step'}-{step:08d}"


def list_snapshots(snapshots: Path) -> list[Path]:
    """The snapshots of a run, the oldest first."""
    return sorted(snapshots.glob("step-*"))


def list_regular(checkpoints: Path) -> list[Path]:
    """The checkpoints that every training of a configuration saves, the oldest first."""
    return sorted(checkpoints.glob("step-*"))


def list_stopped(checkpoints: Path) -> list[Path]:
    """Those that were saved because the training was told to stop."""
    return sorted(checkpoints.glob("stopped-*"))


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """All of them, the oldest first; of two for one step, the regular one is the newer."""
    every = [*list_stopped(checkpoints), *list_regular(checkpoints)]
    return sorted(every, key=read_step)


def read_step(folder: Path) -> int:
    """The step of a checkpoint's folder."""
    return int(folder.name.rpartition("-")[2])


def find_newest(checkpoints: Path, say: Callable[[str], None]) -> tuple[Path, Checkpoint] | None:
    """The newest checkpoint that verifies; `say` reports those that do not. Another format is refused."""
    for folder in reversed(list_checkpoints(checkpoints)):
        try:
            return folder, load_checkpoint(folder)
        except FormatError:
            raise
        except RunError as error:
            say(f"{error}; trying the one before")
    return None


def write_folder(folder: Path, files: dict[str, bytes], conditions: Conditions) -> None:
    """Write a folder of files and its manifest, whole or not at all."""
    parent = folder.parent
    temporary = parent / f".{folder.name}.{os.getpid()}.partial"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            write_flushed(temporary / name, content)
        write_flushed(temporary / _MANIFEST, _json(_describe(files, conditions)))
        flush_folder(temporary)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        flush_folder(parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise RunError(f"{folder}: cannot be written: {error}; free some room or check the folder's rights") from None


def remove_partial(folder: Path) -> None:
    """Remove what was left of folders and files that were being written when their process was killed."""
    for left in folder.glob(".*.partial"):
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def write_files(folder: Path, files: dict[str, bytes], conditions: Conditions) -> None:
    """Replace files of a folder that stays, one by one, and the manifest that vouches for them last."""
    try:
        for name, content in {**files, _MANIFEST: _json(_describe(files, conditions))}.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error}; free some room or check the folder's rights") from None


def verify_folder(folder: Path) -> Conditions:
    """What wrote the folder; raise RunError unless every file in the manifest is there and has its hash."""
    manifest = _read_manifest(folder)
    for name, wanted in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise RunError(f"{path}: is missing")
        if hash_file(path) != wanted:
            raise RunError(f"{path}: is damaged: its SHA-256 is not the one in the manifest")
    return {key: value for key, value in manifest.items() if key not in ("format", "files")}


def _describe(files: dict[str, bytes], conditions: Conditions) -> dict[str, Any]:
    """The manifest, with a hash of itself."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest = {**conditions, "format": FORMAT, "files": hashes}
    return {**manifest, "sha256": hashlib.sha256(_json(manifest)).hexdigest()}


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / _MANIFEST
    try:
        content = path.read_bytes()
        manifest: dict[str, Any] = json.loads(content)
        stated = manifest.pop("sha256")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from None
    if hashlib.sha256(_json(manifest)).hexdigest() != stated or content != _json({**manifest, "sha256": stated}):
        raise RunError(f"{path}: is damaged: it is not what was written")
    if manifest["format"] != FORMAT:
        writer = f"Seqloom {manifest['seqloom']}, which" if "seqloom" in manifest else "the version that"
        raise FormatError(
            f"{folder}: has format {manifest['format']}, and Seqloom {__version__} reads only {FORMAT}; "
            f"train again in another folder, or use {writer} wrote it"
        )
    return manifest


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def _contiguous(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
