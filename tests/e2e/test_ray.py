"""Bulk jobs on a Ray cluster of two machines with a core each: the same bytes as from a single process."""

import importlib.util
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forked import seqloom, start
from ray_cluster import Cluster, start_cluster
from small_corpora import sentences
from small_runs import Runs

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra ray)")
RUN = "table"
"""A translation model of short texts: others are split."""
LINES = 4200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_cluster(tmp_path_factory.mktemp("ray") / "log") as started:
        yield started


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short lines, some of them blank, not UTF-8, or too long."""
    good = [line.encode() for line in sentences(500, seed=3)]
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    kinds = {3: b"", 50: b"the \xff horse", 70: b" ".join(good[:20])}
    path.write_bytes(b"".join(kinds.get(n % 100, good[n % 500]) + b"\n" for n in range(LINES)))
    return path


@pytest.fixture(scope="module")
def translated(lines: Path, runs: Runs) -> bytes:
    """What a single process writes."""
    return seqloom("translate", runs(RUN), lines).stdout


def without_progress(told: str) -> str:
    """What was told, but not how far it was at some time."""
    return re.sub(r"^\w+: [\d,]+ lines\n", "", told, flags=re.MULTILINE)


@pytest.mark.long
@needs_ray
@pytest.mark.parametrize(
    ("words", "ending", "said"),
    [
        (["translate", "--json"], "jsonl", "of several sentences"),
        (["embed"], "npy", "split"),
    ],
)
def test_the_same_bytes(
    words: list[str], ending: str, said: str, cluster: Cluster, lines: Path, runs: Runs, tmp_path: Path
) -> None:
    verb, *options = words
    plain, spread = (tmp_path / f"{name}.{ending}" for name in ("plain", "spread"))
    alone = seqloom(verb, runs(RUN), lines, *options, "-o", plain)
    code, _, told = cluster.seqloom(verb, runs(RUN), lines, *options, "-o", spread, "--engine", "ray")
    assert spread.read_bytes() == plain.read_bytes()
    assert (code, without_progress(told)) == (alone.returncode, without_progress(alone.stderr.decode()))
    assert code == 1
    assert "line 51: failed: bad_utf8" in told
    assert f"{LINES // 100} lines failed, {LINES // 100} lines {said}" in told


@pytest.mark.long
@needs_ray
@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["generate", "--sample", "--seed", "4"], "language-model"),
        (["score"], "language-model"),
        (["tag"], "tagging"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, list) else given,
)
def test_every_verb_travels(words: list[str], name: str, cluster: Cluster, runs: Runs, tmp_path: Path) -> None:
    verb, *options = words
    given = tmp_path / "lines"
    given.write_text("the cat [MASK] the dog .\n\na bird\n", encoding="utf-8")
    alone = seqloom(verb, runs(name), given, *options)
    code, out, told = cluster.seqloom(verb, runs(name), given, *options, "--engine", "ray", "--workers", 1)
    assert (code, out) == (alone.returncode, alone.stdout.decode())
    assert without_progress(told) == without_progress(alone.stderr.decode())
    assert alone.stdout.count(b"\n") == 3


def read_data(run: Path) -> dict[str, bytes]:
    """The tokeniser and every file of the encoded texts."""
    files = [run / "tokenizer.json", *sorted((run / "data").glob("[tv]*/*"))]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


@pytest.mark.long
@needs_ray
def test_a_corpus_is_encoded_to_the_same_shards(cluster: Cluster, tmp_path: Path) -> None:
    """Several files, so that there are many chunks; the training goes on from what the cluster has made."""
    for number in range(12):
        lines = "\n".join(f"{number} {line}" for line in sentences(300, seed=number))
        (tmp_path / f"part-{number:02}.txt").write_text(f"{lines}\n", encoding="utf-8")
    config = tmp_path / "lm.toml"
    config.write_text(
        'task = "language-model"\ntokenizer = {kind = "bpe", size = 400}\nsize = "tiny"\n'
        'data = {train = {files = "part-*.txt"}, valid = {files = "part-00.txt"}, checks = {overlap = "off"}}\n'
        "train = {steps = 2}\n"
    )
    alone = seqloom("prepare", config, "--out", tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr.decode()
    code, out, told = cluster.seqloom("prepare", config, "--out", tmp_path / "spread", "--engine", "ray")
    assert (code, out) == (0, f"{tmp_path / 'spread'}\n"), told
    here, there = read_data(tmp_path / "alone"), read_data(tmp_path / "spread")
    assert here == there
    assert sum(name.endswith(".safetensors") for name in here) == 13
    shards = {file: file.stat().st_mtime_ns for file in (tmp_path / "spread" / "data").rglob("*.safetensors")}
    trained = seqloom("train", config, "--out", tmp_path / "spread")
    assert trained.returncode == 0, trained.stderr.decode()
    assert {file: file.stat().st_mtime_ns for file in shards} == shards, "training encodes nothing again"
    code, _, told = cluster.seqloom("prepare", config, "--out", tmp_path / "none", "--engine", "ray", "--workers", 3)
    assert (code, told) == (2, "error: --workers 3: a worker needs a core, and the cluster has 2; give fewer\n")


@pytest.mark.long
@needs_ray
def test_a_killed_job_goes_on(
    cluster: Cluster, lines: Path, translated: bytes, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.txt"
    words = ("translate", runs(RUN), lines, "-o", broken, "--engine", "ray")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    job = start(*words)
    while not broken.exists() or not broken.stat().st_size:
        time.sleep(0.01)
    os.kill(job.pid, signal.SIGKILL)
    assert job.wait().returncode == -signal.SIGKILL
    assert 0 < broken.read_bytes().count(b"\n") < LINES
    alone = tmp_path / "alone.txt"
    for ending in ("", ".progress"):
        shutil.copy(f"{broken}{ending}", f"{alone}{ending}")
    seqloom("translate", runs(RUN), lines, "-o", alone, "--resume")
    assert alone.read_bytes() == translated, "where the rest is computed makes no difference"
    code, _, told = cluster.seqloom(*words, "--resume")
    assert broken.read_bytes() == translated
    assert (code, f"translate: {LINES // 100} lines failed" in told) == (1, True)


@pytest.mark.long
@needs_ray
def test_a_killed_worker_loses_nothing(
    cluster: Cluster, lines: Path, translated: bytes, runs: Runs, tmp_path: Path
) -> None:
    run = shutil.copytree(runs(RUN), tmp_path / "run")
    found, printed = cluster.ask({"killed": 2000, "run": str(run), "file": str(lines)})
    assert found == translated.decode().splitlines()
    assert printed == "", "what Ray says of it does not come between the answers"


@pytest.mark.long
@needs_ray
def test_what_cannot_be_is_said(cluster: Cluster, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = shutil.copytree(runs(RUN), tmp_path / "run")
    told = cluster.ask({"hidden": str(run)})
    assert f"cannot open the run ({run}: there is no run here" in told
    assert "must see the same run under the same name" in told
    code, _, told = cluster.seqloom("embed", runs(RUN), os.devnull, "--engine", "ray", "--workers", 3)
    assert (code, told) == (2, "error: --workers 3: a worker needs a core, and the cluster has 2; give fewer\n")
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    done = seqloom("embed", runs(RUN), "--engine", "ray")
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    assert b"error: cannot use Ray at RAY_ADDRESS=nonsense" in done.stderr


def test_ray_is_optional(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = seqloom("embed", runs(RUN), "--engine", "ray")
    assert (done.returncode, done.stderr) == (1, b"error: ray is not installed; pip install 'seqloom[ray]'\n")
    done = seqloom("embed", runs(RUN), "--workers", 2)
    assert done.returncode == 2
    assert b"--engine ray" in done.stderr
