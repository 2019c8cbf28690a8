"""Every task and family: it learns, and a training that was killed ends with the same bits as one that was not."""

import json
import math
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from small_corpora import DATA, write_config
from weft.train.job import train
from weft.train.run import Run
from weft.train.watch import PlainWatch

FAMILIES = ("transformer", "recurrent", "convolutional")


class Silent(PlainWatch):
    """Prints nowhere; can pull the plug after a step."""

    def __init__(self, kill_at: int = -1) -> None:
        super().__init__(Console(file=open(os.devnull, "w"), force_terminal=False))  # noqa: SIM115 - lives as long as the watch
        self.kill_at = kill_at

    def step(self, progress, outcome, spent) -> None:
        if progress.step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(path: Path, out: Path, kill_at: int, overrides: list[str]) -> None:
    """Train in a child process that is killed, with no chance to clean up."""
    child = os.fork()
    if child == 0:
        try:
            train(path, overrides, out=out, watch=Silent(kill_at))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended by itself before it could be killed"


def valid_of(run: Run) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in run.log.path.read_text().splitlines()]
    return [line["valid"] for line in lines if "valid" in line]


def trivial_loss(corpora: Path, task: str) -> float:
    """The loss of the best answer that ignores its input: the frequencies of the training answers."""
    read = lambda name: (corpora / name).read_text().splitlines()  # noqa: E731
    ends = ["<end>"]
    match task:
        case "classification":
            known, asked = ([row.split("\t")[1] for row in read(f"{split}.tsv")[1:]] for split in ("train", "valid"))
        case "tagging":
            known, asked = ([row.split()[1] for row in read(f"{s}.conll") if row] for s in ("train", "valid"))
        case "translation":
            known, asked = ([w for row in read(f"{s}.target") for w in row.split() + ends] for s in ("train", "valid"))
        case _:
            known, asked = ([w for row in read(f"{s}.txt") for w in row.split() + ends] for s in ("train", "valid"))
    counts = Counter(known)
    return -sum(math.log(counts[answer] / len(known)) for answer in asked) / len(asked)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", DATA)
def test_it_learns_more_than_frequencies(task: str, family: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(
        tmp_path, corpora, task, family, "steps = 100\nlabel_smoothing = 0.0\noptimizer.learning_rate = 0.01"
    )
    run = train(path, out=tmp_path / "run", watch=Silent())
    assert min(valid["loss"] for valid in valid_of(run)) < 0.8 * trivial_loss(corpora, task)
    assert (run.folder / "model.safetensors").exists()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", DATA)
def test_a_killed_training_ends_with_the_same_bits(task: str, family: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, task, family, "steps = 24")
    whole = train(path, out=tmp_path / "whole", watch=Silent())
    for kill_at in (3, 16):
        run_and_die(path, tmp_path / "broken", kill_at, [])
    broken = train(path, out=tmp_path / "broken", watch=Silent())
    for name in ("model.safetensors", "log.jsonl", "checkpoints/step-00000024/optimizer.safetensors"):
        assert (whole.folder / name).read_bytes() == (broken.folder / name).read_bytes(), name


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_optimizers_resume_exactly(optimizer: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", f'steps = 12\noptimizer = "{optimizer}"')
    whole = train(path, out=tmp_path / "whole", watch=Silent())
    run_and_die(path, tmp_path / "broken", 9, [])
    broken = train(path, out=tmp_path / "broken", watch=Silent())
    assert (whole.folder / "model.safetensors").read_bytes() == (broken.folder / "model.safetensors").read_bytes()
