"""The forecast of `seqloom check`, beside what a training then does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import write_config


@pytest.mark.parametrize("task", ["translation", "tagging"])
def test_a_forecast_counts_the_steps_that_training_takes(task: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, task, "recurrent", "epochs = 1")
    done = subprocess.run(
        [sys.executable, "-m", "seqloom", "check", str(path), "--json"], capture_output=True, text=True, check=True
    )
    forecast = json.loads(done.stdout)["forecast"]
    run = train(path, out=tmp_path / "run", monitor=PlainMonitor(Console(quiet=True)))
    steps = sum("rate" in json.loads(line) for line in run.log.path.read_text().splitlines())
    assert forecast["steps_per_epoch"] == steps
    assert 0.0 < forecast["minutes_per_epoch"] < 10.0
    assert 100 << 20 < forecast["peak_memory_bytes"] < 4 << 30  # torch alone takes the lower bound
