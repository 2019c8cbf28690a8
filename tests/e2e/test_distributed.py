"""Two processes that train one model: the same samples, the same loss, the same bits after a kill."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from seqloom.runs.checkpoint import Checkpoint, save_checkpoint
from seqloom.training import checkpointing
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import DATA, write_config
from together import train_together

NO_DROPOUT = ["model.encoder.dropout=0.0", "model.embedding_dropout=0.0"]


def read_losses(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def train_alone(path: Path, out: Path, overrides: list[str]) -> Path:
    return train(path, overrides, out=out, monitor=PlainMonitor(Console(quiet=True))).folder


CASES = [(task, "transformer", "none") for task in DATA]
CASES += [("translation", "transformer", "full")]
LONG_CASES = [
    ("translation", family, sharding) for family in ("recurrent", "convolutional") for sharding in ("none", "full")
]
LONG_CASES += [("tagging", "transformer", "full")]


@pytest.mark.parametrize(
    ("task", "family", "sharding"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG_CASES)]
)
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
        # A key's bias changes nothing, so its gradient is rounding noise, which Adam takes for a direction.
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("sharding", ["none", "full"])
@pytest.mark.parametrize(
    "extra",
    [
        'optimizer = "muon"\nema = 0.9\naccumulate = 2',
        pytest.param("average = 2\nrecompute = true", marks=pytest.mark.long),
    ],
)
def test_a_killed_rank_is_no_loss(extra: str, sharding: str, corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", f'steps = 12\nsharding = "{sharding}"\n{extra}')
    assert train_together(path, tmp_path / "whole") == [0, 0]
    codes = train_together(path, tmp_path / "broken", kill_at=9)
    assert -9 in codes
    assert 0 not in codes, "the others must not go on alone"
    assert train_together(path, tmp_path / "broken") == [0, 0]
    for name in ("model.safetensors", "log.jsonl", "checkpoints/step-00000012/optimizer.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


def test_no_rank_goes_on_before_a_checkpoint_is_there(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_slowly(folder: Path, checkpoint: Checkpoint) -> None:
        time.sleep(0.5)  # a busy disk
        save_checkpoint(folder, checkpoint)

    monkeypatch.setattr(checkpointing, "save_checkpoint", save_slowly)
    path = write_config(tmp_path, corpora, "tagging", "transformer", 'steps = 12\nsharding = "full"\naverage = 2')
    assert train_together(path, tmp_path / "run") == [0, 0]
    last, before = (
        load_file(folder / "model.safetensors") for folder in sorted((tmp_path / "run").glob("checkpoints/step-*"))
    )
    for name, mean in load_file(tmp_path / "run" / "model.safetensors").items():
        torch.testing.assert_close(mean, (last[name] + before[name]) / 2)


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
    torch.testing.assert_close(read_losses(tmp_path / "together"), read_losses(alone), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize(("overrides", "told"), [([], 1), (NO_DROPOUT, 0)], ids=["dropout", "none"])
def test_several_ranks_say_that_their_dropout_is_their_own(
    overrides: list[str], told: int, corpora: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, corpora, "tagging", "transformer", "steps = 2")
    assert train_together(path, tmp_path / "run", overrides, console=Console(stderr=True)) == [0, 0]
    said = capfd.readouterr().err
    assert said.count("each of the 2 processes draws its own dropout, so the weights will differ") == told


SEQLOOM = (sys.executable, "-m", "seqloom")


def find_ranks(launcher: int) -> list[int]:
    """The processes that a launcher started."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(child) for child in children if b"seqloom" in Path(f"/proc/{child}/cmdline").read_bytes()]


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    log = folder / "log.jsonl"
    while not log.exists() or len(log.read_text().splitlines()) < step:
        assert process.poll() is None, "it ended too early"
        time.sleep(0.02)


@pytest.mark.long
def test_the_command_starts_a_killed_rank_again_and_stops_when_told(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 60\nvalidate_every = 30")
    command = [*SEQLOOM, "train", str(path), "--processes", "2", "--out"]
    assert train_together(path, tmp_path / "whole") == [0, 0]
    process = subprocess.Popen([*command, str(tmp_path / "broken")], stderr=subprocess.PIPE)
    wait_for_step(tmp_path / "broken", 12, process)
    os.kill(find_ranks(process.pid)[1], signal.SIGKILL)
    wait_for_step(tmp_path / "broken", 25, process)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"rank 1 was killed by signal 9; all start again from the last checkpoint" in said
    assert b"stopped and saved at step" in said
    assert subprocess.run([*command, str(tmp_path / "broken")], check=False, capture_output=True).returncode == 0
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


@pytest.mark.long
def test_what_is_wrong_is_said_once(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 4")
    path.write_text(path.read_text().replace("train.conll", "missing.conll"))
    command = [*SEQLOOM, "train", str(path), "--processes", "2", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("missing.conll") == 1
    assert "Traceback" not in done.stderr


def make_hosts() -> list[str]:
    """Two network namespaces joined by a cable, as two hosts would be; skips where the machine does not allow it."""
    hosts = [f"seqloom{os.getpid()}{letter}" for letter in "ab"]
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("two hosts need root and the ip command")
    commands = [f"ip netns add {host}" for host in hosts]
    commands += [f"ip link add cable0 netns {hosts[0]} type veth peer name cable0 netns {hosts[1]}"]
    for number, host in enumerate(hosts, start=1):
        commands += [f"ip -n {host} link set cable0 addrgenmode none"]  # or gloo takes an IPv6 address
        commands += [f"ip -n {host} addr add 10.77.0.{number}/24 dev cable0"]
        commands += [f"ip -n {host} link set {device} up" for device in ("lo", "cable0")]
        names = Path("/etc/netns") / host  # with no name server to ask, nobody waits for one
        names.mkdir(parents=True, exist_ok=True)
        (names / "resolv.conf").write_text("")
    for command in commands:
        done = subprocess.run(command.split(), check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"two hosts need network namespaces: {command}: {done.stderr.strip()}")
    return hosts


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    names = make_hosts()
    yield names
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False)
        shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


@pytest.mark.long
def test_two_hosts_train_together_and_torchrun_restarts_them(hosts: list[str], corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 40\nvalidate_every = 20")
    assert train_together(path, tmp_path / "whole") == [0, 0]
    run = tmp_path / "hosts"
    agents = []
    for number, host in enumerate(hosts, start=1):
        torchrun = "-m torch.distributed.run --nnodes 2 --nproc-per-node 1 --max-restarts 3 --rdzv-backend c10d"
        place = f"--rdzv-endpoint 10.77.0.1:29400 --rdzv-id seqloom --local-addr 10.77.0.{number} "
        place += f"--rdzv-conf is_host={number == 1}"
        command = ["ip", "netns", "exec", host, sys.executable, *torchrun.split(), *place.split()]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "cable0"}
        agents.append(
            subprocess.Popen([*command, "-m", "seqloom", "train", str(path), "--out", str(run)], env=environment)
        )
    try:
        wait_for_step(run, 10, agents[0])
        os.kill(find_ranks(agents[1].pid)[0], signal.SIGKILL)
        assert [agent.wait(timeout=120) for agent in agents] == [0, 0]
    finally:
        for agent in agents:
            agent.kill()
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (run / name).read_bytes(), name
