"""What may happen to a training: it is told to stop, the disk is full, the folder cannot be written, there are two."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqloom.runs.verify import verify
from small_corpora import write_config

SEQLOOM = (sys.executable, "-m", "seqloom")


def start(config: Path, out: Path) -> subprocess.Popen[str]:
    command = [*SEQLOOM, "train", str(config), "--out", str(out)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(config: Path, out: Path) -> tuple[int, str]:
    process = start(config, out)
    _, said = process.communicate(timeout=120)
    assert "Traceback" not in said
    return process.returncode, said


def wait_for_step(process: subprocess.Popen[str], folder: Path, step: int) -> None:
    log = folder / "log.jsonl"
    while not log.exists() or len(log.read_text().splitlines()) < step:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_saves_and_the_same_command_ends_with_the_same_bits(
    number: signal.Signals, corpora: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 80\nvalidate_every = 40\nsnapshots = 8")
    config.write_text(config.read_text().replace("save_every = 7", "save_every = 1000"))
    process = start(config, tmp_path / "broken")
    wait_for_step(process, tmp_path / "broken", 30)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "stopped and saved at step" in said
    assert finish(config, tmp_path / "broken")[0] == 0
    assert finish(config, tmp_path / "whole")[0] == 0
    snapshots = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").glob("snapshots/*/model.*")]
    assert len(snapshots) == 8
    for name in ("model.safetensors", "log.jsonl", *snapshots):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


def test_a_signal_before_the_first_step_ends_at_once(corpora: Path, tmp_path: Path) -> None:
    endless = tmp_path / "endless.conll"
    os.mkfifo(endless)  # reading it never comes to an end
    config = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 4")
    config.write_text(config.read_text().replace(f"{corpora}/train.conll", str(endless)))
    process = start(config, tmp_path / "run")
    while not (tmp_path / "run" / "lock").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM


def test_processor_time_goes_on_only_while_the_process_does(corpora: Path, tmp_path: Path) -> None:
    changes = 'steps = 80\nclock = "processor"'
    process = start(write_config(tmp_path, corpora, "tagging", "recurrent", changes), tmp_path / "run")
    wait_for_step(process, tmp_path / "run", 10)
    process.send_signal(signal.SIGSTOP)
    time.sleep(5)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=60) == 0
    last = json.loads((tmp_path / "run" / "speed.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 80
    assert 0.0 < last["seconds"] < 5.0


@pytest.mark.long
def test_two_trainings_in_one_folder_are_one_too_many(corpora: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 100000")
    first = start(config, tmp_path / "run")
    wait_for_step(first, tmp_path / "run", 1)
    code, said = finish(config, tmp_path / "run")
    first.kill()
    first.communicate()
    assert code == 1
    assert "is being trained by another process" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "seqloom", disk], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.long
def test_a_full_disk_is_told_and_a_larger_one_is_all_it_takes(small_disk: Path, corpora: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 100\nkeep = 9\nsnapshots = 8")
    code, said = finish(config, small_disk / "run")
    assert code == 1
    assert "No space left on device" in said
    subprocess.run(["mount", "-o", "remount,size=100m", small_disk], check=True)
    assert finish(config, small_disk / "run")[0] == 0
    assert finish(config, tmp_path / "whole")[0] == 0
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (small_disk / "run" / name).read_bytes(), name
    assert not list((small_disk / "run").rglob("*.partial"))
    assert not [verdict for verdict in verify(small_disk / "run") if verdict.fault]


def test_a_disk_that_cannot_be_written_is_told(small_disk: Path, corpora: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    code, said = finish(write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 4"), small_disk / "run")
    assert code == 1
    assert "Read-only file system" in said
    assert "choose another folder" in said
