"""A trained model of each task, on the small corpora; each is trained once, when a test first asks for it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import write_config

Runs = Callable[[str], Path]
TRAIN = "steps = {steps}\nlabel_smoothing = 0.0\noptimizer.learning_rate = 0.01"
VARIANTS: dict[str, tuple[str, list[str]]] = {
    "regression": ("classification", ['data.labels="numbers"']),
    "running-text": ("language-model", ['batch.rows={kind = "windows", length = 32}']),
    "sinusoidal": ("translation", [f"model.{side}.positions=sinusoidal" for side in ("encoder", "decoder")]),
    "table": ("translation", ['model.encoder.positions={kind = "learned", table = 32}', "batch.max_length=16"]),
}
"""Runs that differ from their task's by some settings."""


@pytest.fixture(scope="session")
def runs(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The folder of a run, by the name of its task or variant, and its family: `translation`, `tagging/recurrent`."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            variant, _, family = name.partition("/")
            task, overrides = VARIANTS.get(variant, (variant, []))
            folder = tmp_path_factory.mktemp("run")
            path = write_config(
                folder,
                corpora,
                task,
                family or "transformer",
                TRAIN.format(steps=250 if name == "translation" else 100),
            )
            if variant == "regression":
                path.write_text(path.read_text().replace(".tsv", ".numbers.tsv"))
            watch = PlainMonitor(Console(quiet=True))
            made[name] = train(path, overrides, out=folder / "run", monitor=watch).folder
        return made[name]

    return get
