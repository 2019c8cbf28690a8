"""The forecast of `seqloom check`, beside what a training then does."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from listening import Listening
from seqloom.training.job import train
from small_corpora import write_config


@pytest.mark.parametrize("task", ["translation", pytest.param("tagging", marks=pytest.mark.long)])
def test_a_forecast_counts_the_steps_that_training_takes(task: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, task, "recurrent", "epochs = 1\nsnapshots = 2")
    path.write_text(path.read_text(encoding="utf-8").replace("tokens = 512\n", ""), encoding="utf-8")  # the data say
    done = subprocess.run(
        [sys.executable, "-m", "seqloom", "check", str(path), "--json"], capture_output=True, text=True, check=True
    )
    report = json.loads(done.stdout)
    forecast = report["forecast"]
    heard = Listening()
    run = train(path, out=tmp_path / "run", monitor=heard)
    assert report["rehearsal"]["batches"] in heard.heard
    assert json.loads((run.folder / "manifest.json").read_bytes())["batches"] == report["rehearsal"]["batches"]
    steps = sum("rate" in json.loads(line) for line in run.log.path.read_text().splitlines())
    assert forecast["steps_per_epoch"] == steps
    assert 0.0 < forecast["minutes_per_epoch"] < 10.0
    assert 100 << 20 < forecast["peak_memory_bytes"] < 4 << 30  # torch alone takes the lower bound
    assert (forecast["budget"], forecast["epochs"]) == ("1 epoch", 1.0)
    kept = [path.stat().st_size for path in run.snapshots.glob("*/model.safetensors")]
    assert len(kept) == forecast["snapshots"] == 2
    assert kept == pytest.approx([forecast["snapshot_bytes"]] * 2, rel=0.1)  # and the names of the weights


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("train.minutes=10", r"10 minutes, is about \d[\d,.]* epochs"),
        *(
            pytest.param(budget, said, marks=pytest.mark.long)
            for budget, said in (
                ("train.steps=50", r"50 steps, is about \d[\d.]* epochs and \d[\d.]* minutes"),
                ("train.tokens=1000", r"1,000 tokens, is about \d[\d.]* epochs and \d[\d.]* minutes"),
            )
        ),
    ],
)
def test_a_forecast_says_how_many_epochs_the_budget_is(budget: str, said: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent")
    done = subprocess.run(
        [sys.executable, "-m", "seqloom", "check", str(path), budget], capture_output=True, text=True, check=True
    )
    assert re.search(said, done.stdout), done.stdout
    assert "snapshots of its weights" not in done.stdout


def test_a_forecast_says_how_much_room_snapshots_take(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "snapshots = 8")
    done = subprocess.run(
        [sys.executable, "-m", "seqloom", "check", str(path)], capture_output=True, text=True, check=True
    )
    assert re.search(r"8 snapshots of its weights to look inside would take 0\.\d MiB of disk", done.stdout)
