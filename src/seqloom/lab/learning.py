"""Training the small models that experiments need: ordinary runs, for every verb and for `seqloom explore`."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from seqloom.predict.load import load
from seqloom.predict.model import Model
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor

_SETTINGS = """[train]
steps = {steps}
seed = {seed}
threads = 1
label_smoothing = 0.0
judge_by = "loss"
snapshots = {snapshots}
"""


def learn(
    folder: Path, config: str, files: Mapping[str, Iterable[str]], *, seed: int, steps: int, snapshots: int = 0
) -> Model:
    """Train a run on files of lines, in `folder`; what was trained before is loaded, what was interrupted goes on.

    One thread, so that the weights are the same on every number of cores.
    """
    path = folder / "config.toml"
    if not path.exists():
        for name, lines in files.items():
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        settings = _SETTINGS.format(steps=steps, seed=seed, snapshots=snapshots)
        path.write_text(f"{config.rstrip()}\n{settings}", encoding="utf-8")
    return load(train(path, out=folder / "run", monitor=PlainMonitor(Console(quiet=True))).folder)
