"""Each experiment shows the same with other seeds, and the same numbers however many models are trained at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqloom.lab.session import run_experiment
from unit.lab.smallest import EXPECTED, check

pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", EXPECTED)
def test_it_shows_what_it_teaches_with_every_seed(name: str, seed: int, tmp_path: Path) -> None:
    check(name, tmp_path, seed)


def test_models_trained_at_once_are_those_trained_one_after_the_other(tmp_path: Path) -> None:
    changes = ['models=["transformer", "convolution"]', "model_dim=16", "steps=24", "sentences=1000", "asked=5"]
    found = [run_experiment("pairs", changes, folder=tmp_path / str(jobs), jobs=jobs).facts for jobs in (1, 2)]
    assert found[0] == found[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whoever_stops_it_waits_for_nothing_and_loses_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to every process; a kill reaches only the first."""
    settings = ("steps=100000", "model_dim=16", "sentences=2000", 'models=["transformer", "lstm"]')
    command = [sys.executable, "-m", "seqloom", "lab", "pairs", "--jobs", "2", "--out", str(tmp_path)]
    command += [word for one in settings for word in ("--set", one)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    while len([*tmp_path.glob("units/*/run/log.jsonl")]) < 2:
        assert process.poll() is None
        time.sleep(0.1)
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    printed, said = process.communicate(timeout=120)  # ends when the last process has closed it
    assert (process.returncode, printed) == (130 if number == signal.SIGINT else -number, b"")
    assert number == signal.SIGKILL or said == b"stopped; the same command goes on from there\n"
    assert not [*tmp_path.glob("units/*.json")]
    assert len([*tmp_path.glob("units/*/run")]) == 2
