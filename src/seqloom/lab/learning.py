"""Training the small models that experiments need: ordinary runs, which every verb can use and `seqloom explore` can open."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from seqloom.predict.load import load
from seqloom.predict.model import Model
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor


def learn(folder: Path, config: str, files: Mapping[str, Iterable[str]]) -> Model:
    """Train a run on files of lines, in `folder`; what was trained before is loaded, what was interrupted goes on."""
    path = folder / "config.toml"
    if not path.exists():
        for name, lines in files.items():
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        path.write_text(config, encoding="utf-8")
    return load(train(path, out=folder / "run", monitor=PlainMonitor(Console(quiet=True))).folder)
