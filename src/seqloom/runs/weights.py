"""The weights that a folder offers.

a finished run       model.safetensors
an unfinished run    those of its best checkpoint so far, or of its newest where nothing was judged yet
a checkpoint         its own; configuration, tokeniser and labels are those of the run around it
a snapshot           the same
"""

from dataclasses import dataclass
from pathlib import Path

from seqloom.errors import RunError
from seqloom.nn.low_rank import merge_tensors
from seqloom.runs.checkpoint import (
    AVERAGE,
    Tensors,
    find_newest,
    is_snapshot,
    list_checkpoints,
    list_snapshots,
    load_checkpoint,
    load_tensors,
    name_checkpoint,
    read_step,
    verify_folder,
)
from seqloom.tasks import Task
from seqloom.tasks.configuration import load_resolved


@dataclass(frozen=True)
class Stored:
    """Where the parts of a model are."""

    run: Path
    """The folder of the configuration, the tokeniser and the labels."""
    weights: Path
    """The folder of the weights, with the manifest that vouches for them: the run, a checkpoint or a snapshot."""
    note: str = ""
    """What a user should know about them."""

    @property
    def manifest(self) -> Path:
        """The manifest that vouches for the weights."""
        return self.weights / "manifest.json"


def list_moments(run: Path) -> dict[str, Path]:
    """The moments of a training whose weights are there, by name, the earliest first: snapshots and checkpoints.

    Where there are both of one step, they have the same weights, and the snapshot is named.
    """
    kept = {folder.name: folder for folder in list_checkpoints(run / "checkpoints")}
    kept |= {folder.name: folder for folder in list_snapshots(run / "snapshots")}
    return dict(sorted(kept.items(), key=lambda one: read_step(one[1])))


def find_run(folder: Path) -> Path:
    """The run that a folder is, or that it is a checkpoint or a snapshot of."""
    return folder.resolve().parent.parent if (folder / "state.json").exists() else folder


def find_weights(folder: Path) -> Stored:
    """Choose the weights that a run, a checkpoint or a snapshot is used by; RunError where there are none."""
    if folder.is_file():
        more = f"; `seqloom train {folder}` makes one of a configuration" if folder.suffix == ".toml" else ""
        if folder.suffix in (".txt", ".vec", ".bin", ".gz"):
            more = f"; if it holds word vectors, `seqloom vectors nearest {folder} WORD` looks them up"
        raise RunError(f"{folder}: is a file, and a run is a folder{more}")
    run = find_run(folder)
    if run != folder:
        if not (run / "config.toml").exists():
            kind = "snapshots" if is_snapshot(folder) else "checkpoints"
            raise RunError(f"{folder}: is a checkpoint without its run; put it back into the run's folder {kind}")
        return Stored(run, folder)
    if (folder / "manifest.json").exists():
        return Stored(folder, folder)
    if not (folder / "config.toml").exists():
        raise RunError(
            f"{folder}: there is no run here; `seqloom train CONFIG --out {folder}` makes one, `seqloom import` brings "
            "one in"
        )
    if (folder / "vectors.bin").exists():
        raise RunError(
            f"{folder} holds word vectors; use them with `seqloom vectors nearest {folder}/vectors.bin WORD`"
        )
    resume = "the same `seqloom train` command resumes it"
    found = find_newest(folder / "checkpoints", lambda _: None)
    if found is None:
        raise RunError(f"{folder}: its training is not finished, and has saved nothing to use so far; {resume}")
    if not (folder / "labels.json").exists():
        raise RunError(
            f"{folder}: its training is not finished, and was begun by a version that cannot use it; {resume}"
        )
    newest, state = found[0], found[1].state
    best = name_checkpoint(folder / "checkpoints", state["best_step"])
    if state["best_step"] and best.exists():
        which, chosen = f"step {state['best_step']:,}, the best of {state['step']:,} so far", best
    else:
        which, chosen = f"step {state['step']:,}, the last that was saved", newest
    return Stored(folder, chosen, f"{folder}: its training is not finished; these are the weights of {which}; {resume}")


def read_weights(stored: Stored) -> Tensors:
    """The weights of a model as it is used: averaged where the training averages, adapters merged."""
    if stored.weights == stored.run:
        return load_tensors(stored.run / "model.safetensors")
    if is_snapshot(stored.weights):
        verify_folder(stored.weights)
        weights = load_tensors(stored.weights / "model.safetensors")
    else:
        checkpoint = load_checkpoint(stored.weights)
        kept = {name: tensor for name, tensor in checkpoint.optimizer.items() if name.startswith(AVERAGE)}
        weights = checkpoint.model | {name.removeprefix(AVERAGE): tensor for name, tensor in kept.items()}
    config = load_resolved(stored.run / "config.toml")
    adapters = config.train.adapters if isinstance(config, Task) else None
    return weights if adapters is None else merge_tensors(weights, adapters.alpha / adapters.rank)
