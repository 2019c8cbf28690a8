"""Two processes that train one model: the same samples, the same loss, the same bits after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from small_corpora import DATA, write_config
from together import train_together
from weft.train.job import train
from weft.train.watch import PlainWatch

NO_DROPOUT = ["model.encoder.dropout=0.0", "model.embedding_dropout=0.0"]


def read_losses(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def train_alone(path: Path, out: Path, overrides: list[str]) -> Path:
    return train(path, overrides, out=out, watch=PlainWatch(Console(quiet=True))).folder


PAIRS = [(task, "transformer") for task in DATA] + [
    (task, family) for task in ("translation", "language-model") for family in ("recurrent", "convolutional")
]


@pytest.mark.parametrize("sharding", ["none", "full"])
@pytest.mark.parametrize(("task", "family"), PAIRS)
def test_two_ranks_do_what_one_does_in_two_parts(
    task: str, family: str, sharding: str, corpora: Path, tmp_path: Path
) -> None:
    path = write_config(tmp_path, corpora, task, family, f'steps = 10\nvalidate_every = 5\nsharding = "{sharding}"')
    alone = train_alone(path, tmp_path / "alone", ["train.accumulate=2", "train.sharding=none"])
    assert train_together(path, tmp_path / "together") == [0, 0]
    assert_same_training(tmp_path / "together", alone)


def assert_same_training(folder: Path, other: Path) -> None:
    torch.testing.assert_close(read_losses(folder), read_losses(other), rtol=1e-5, atol=0.0)
    weights = load_file(folder / "model.safetensors")
    for name, tensor in load_file(other / "model.safetensors").items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("sharding", ["none", "full"])
@pytest.mark.parametrize("extra", ['optimizer = "muon"\nema = 0.9\naccumulate = 2', "average = 2\nrecompute = true"])
def test_a_killed_rank_is_no_loss(extra: str, sharding: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", f'steps = 12\nsharding = "{sharding}"\n{extra}')
    assert train_together(path, tmp_path / "whole") == [0, 0]
    codes = train_together(path, tmp_path / "broken", kill_at=9)
    assert -9 in codes
    assert 0 not in codes, "the others must not go on alone"
    assert train_together(path, tmp_path / "broken") == [0, 0]
    for name in ("model.safetensors", "log.jsonl", "checkpoints/step-00000012/optimizer.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


def test_a_run_may_change_its_ranks_and_its_sharding(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", "steps = 15\nvalidate_every = 5")
    alone = train_alone(path, tmp_path / "alone", NO_DROPOUT)
    changing = tmp_path / "changing"
    train_together(path, changing, NO_DROPOUT, size=3, kill_at=9)
    train_together(path, changing, [*NO_DROPOUT, "train.sharding=full"], size=2, kill_at=14)
    assert sorted(folder.name for folder in (changing / "checkpoints").iterdir())[-1] == "step-00000010"
    train_alone(path, changing, NO_DROPOUT)
    assert_same_training(changing, alone)


def test_a_batch_of_fewer_samples_than_ranks_is_no_trouble(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "translation", "transformer", "steps = 5\nvalidate_every = 5")
    small = [*NO_DROPOUT, "model.decoder.dropout=0.0", "batch.tokens=64", "batch.max_length=32"]
    alone = train_alone(path, tmp_path / "alone", small)
    assert train_together(path, tmp_path / "together", small, size=5) == [0] * 5
    assert_same_training(tmp_path / "together", alone)


WEFT = (sys.executable, "-m", "weft")


def find_ranks(launcher: int) -> list[int]:
    """The processes that a launcher started."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(child) for child in children if b"weft" in Path(f"/proc/{child}/cmdline").read_bytes()]


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    log = folder / "log.jsonl"
    while not log.exists() or len(log.read_text().splitlines()) < step:
        assert process.poll() is None, "it ended too early"
        time.sleep(0.02)


def test_the_command_starts_a_killed_rank_again_and_stops_when_told(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 400\nvalidate_every = 200")
    command = [*WEFT, "train", str(path), "--processes", "2", "--out"]
    assert train_together(path, tmp_path / "whole") == [0, 0]
    process = subprocess.Popen([*command, str(tmp_path / "broken")], stderr=subprocess.PIPE)
    wait_for_step(tmp_path / "broken", 30, process)
    os.kill(find_ranks(process.pid)[1], signal.SIGKILL)
    wait_for_step(tmp_path / "broken", 60, process)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"rank 1 was killed by signal 9; all start again from the last checkpoint" in said
    assert b"stopped and saved at step" in said
    assert subprocess.run([*command, str(tmp_path / "broken")], check=False, capture_output=True).returncode == 0
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


def test_what_is_wrong_is_said_once(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 4")
    path.write_text(path.read_text().replace("train.conll", "missing.conll"))
    command = [*WEFT, "train", str(path), "--processes", "2", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("missing.conll") == 1
    assert "Traceback" not in done.stderr
