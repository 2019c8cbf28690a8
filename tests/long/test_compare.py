"""Comparisons on a Ray cluster whose machines are lost, and comparisons that are stopped: always the same table."""

import importlib.util
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from forked import seqloom, start
from ray_cluster import start_cluster
from small_corpora import write_config

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra ray)")
FAMILIES = ("--over", "model.encoder.family=transformer,recurrent", "--data-share", "0.5,1", "--seeds", "1")


@pytest.fixture(scope="module")
def config(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    return write_config(folder, corpora, "tagging", "transformer", "steps = 150\nvalidate_every = 25")


@pytest.fixture(scope="module")
def whole(config: Path) -> Path:
    out = config.parent / "whole"
    done = seqloom("compare", config, *FAMILIES, "--out", out)
    assert done.returncode == 0, done.stderr.decode()
    return out


def read(out: Path) -> tuple[dict[str, Any], str, bytes]:
    """What must be the same at every repetition: all but times."""
    facts: dict[str, Any] = json.loads((out / "compare.json").read_text())
    del facts["times"]
    page = (out / "compare.md").read_text().partition("**What it took")[0]
    return facts, page, (out / "compare.svg").read_bytes()


@needs_ray
def test_a_lost_machine_changes_nothing(config: Path, whole: Path, tmp_path: Path) -> None:
    out = config.parent / "spread"
    begun = [out / f"{family}-share-0.5-seed-1" / "checkpoints" for family in ("transformer", "recurrent")]
    words = ["compare", str(config), *FAMILIES, "--engine", "ray", "--out", str(out)]
    with start_cluster(tmp_path / "log") as cluster:
        code, _, told, was_lost = cluster.ask({"lost": words, "when": [str(path) for path in begun]})
    assert (code, was_lost) == (0, True), told
    assert read(out) == read(whole)
    starts = [(path.parent / "speed.jsonl").read_text().count('"start"') for path in begun]
    assert sorted(starts) == [1, 2], "the training of the machine that was lost began again, from its checkpoint"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_says_how_to_go_on(config: Path, whole: Path, number: signal.Signals) -> None:
    out = config.parent / f"stopped-{number}"
    started = start("compare", config, *FAMILIES, "--out", out)
    end = time.monotonic() + 120
    while not (out / "transformer-share-0.5-seed-1" / "checkpoints").exists() and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(started.pid, number)
    done = started.wait()
    assert done.returncode == 128 + number
    assert f"stopped; {out} keeps what was done, and the same command goes on from there" in done.stderr.decode()
    saved = list((out / "transformer-share-0.5-seed-1" / "checkpoints").glob("stopped-*"))
    assert saved or (out / "transformer-share-0.5-seed-1" / "manifest.json").exists(), "saved before it ended"
    assert seqloom("compare", config, *FAMILIES, "--out", out).returncode == 0
    assert read(out) == read(whole)
