"""Is a run what its manifests say? Hashes, shapes, finiteness of the model, the checkpoints and the snapshots."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from seqloom.errors import RunError
from seqloom.runs.checkpoint import (
    is_snapshot,
    list_checkpoints,
    list_snapshots,
    load_checkpoint,
    load_tensors,
    verify_folder,
)


@dataclass(frozen=True)
class Verdict:
    """One part of a run: what it is, and what is wrong with it (nothing, if `fault` is empty)."""

    part: str
    fault: str = ""


def verify(folder: Path) -> Iterator[Verdict]:
    """Judge every part of a run."""
    if not (folder / "config.toml").exists():
        raise RunError(f"{folder}: there is no run here")
    if (folder / "manifest.json").exists():
        yield _judge("model", folder, folder / "model.safetensors")
    elif (folder / "model.safetensors").exists():
        yield Verdict("model", f"{folder / 'manifest.json'}: is missing, so nothing vouches for the model")
    for checkpoint in list_checkpoints(folder / "checkpoints"):
        yield _judge(checkpoint.name, checkpoint, checkpoint / "model.safetensors")
    for snapshot in list_snapshots(folder / "snapshots"):
        yield _judge(f"snapshots/{snapshot.name}", snapshot, snapshot / "model.safetensors")


def _judge(part: str, folder: Path, weights: Path) -> Verdict:
    try:
        verify_folder(folder)
        if part != "model" and not is_snapshot(folder):
            load_checkpoint(folder)
        bad = [name for name, tensor in load_tensors(weights).items() if not torch.isfinite(tensor).all()]
    except RunError as error:
        return Verdict(part, str(error))
    return Verdict(part, f"{weights}: {bad[0]} is not finite" if bad else "")
