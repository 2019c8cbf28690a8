"""What the benches of taggers and classifiers share: runs of what `seqloom new` writes, how right they are, times."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SEQLOOM = [sys.executable, "-m", "seqloom"]


class Accuracy(NamedTuple):
    """The share of answers that are right, with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2%} ({self.low:.2%} to {self.high:.2%})"


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """A text, unless it is there."""
    if not path.exists():
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def train(run: Path, new: str, given: Iterable[str], threads: int) -> None:
    """What `seqloom new` writes, with some settings; a finished run is left as it is, another goes on."""
    if is_finished(run):
        return
    config = run.parent / f"{new.split()[-1]}.toml"
    if not config.exists():
        subprocess.run([*SEQLOOM, "new", *new.split(), "-o", str(config)], check=True)
    settings = [*given] if new == "word-vectors" else [*given, "data.test=[]", f"train.threads={threads}"]
    before = os.times()
    subprocess.run([*SEQLOOM, "train", str(config), *settings, "--out", str(run)], check=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    _time_of(run).write_text(f"{spent / 60:.2f}\n")


def is_finished(run: Path) -> bool:
    """Whether there is a model in it, and how long it took."""
    return _time_of(run).exists()


def evaluate(run: Path, file: Path) -> Accuracy:
    """Of a tagger its words, of a classifier its texts."""
    command = [*SEQLOOM, "eval", str(run), "--data", str(file), "--json"]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["metrics"]
    right = next(metric for metric in found if metric["name"] == "accuracy")
    return Accuracy(right["value"], right["low"], right["high"])


def measure_minutes(run: Path) -> float:
    """Of a processor, for all of the last `seqloom train`: what else the machine did does not count."""
    return float(_time_of(run).read_text())


def _time_of(run: Path) -> Path:
    return run.with_suffix(".minutes")
