"""A comparison that is killed and started again gives the same table, and its trainings are ordinary runs."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from forked import Done, seqloom, start
from small_corpora import write_config

RATES = "train.optimizer.learning_rate=0.005,0.02,1e30"


@pytest.fixture
def config(corpora: Path, tmp_path: Path) -> Path:
    extra = 'steps = 40\noptimizer.kind = "adamw"\nclip = 1e30'
    return write_config(tmp_path, corpora, "classification", "transformer", extra)


def compare(config: Path, out: Path, *words: object) -> Done:
    return seqloom("compare", config, "--over", RATES, "--seeds", 1, "--out", out, *words)


def read(out: Path) -> dict[str, Any]:
    """What must be the same at every repetition: all but times."""
    facts: dict[str, Any] = json.loads((out / "compare.json").read_text())
    del facts["times"]
    return facts


def read_table(out: Path) -> str:
    """The page up to the table of times."""
    return (out / "compare.md").read_text().partition("**What it took")[0]


@pytest.mark.long
def test_killed_and_started_again_it_gives_the_same_table(config: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    done = compare(config, whole, "--json")
    assert done.returncode == 1, "one cell failed"
    facts = read(whole)
    assert {**json.loads(done.stdout), "times": 0} == {**facts, "times": 0}
    assert "Traceback" not in done.stderr.decode()

    good, better, diverged = facts["cells"]
    assert (diverged["value"], good["failed"]) == (None, {})
    assert "not finite" in diverged["failed"]["1"]
    assert "failed" in read_table(whole)
    assert 0.0 < good["interval"][0] <= good["value"] <= good["interval"][1] <= 1.0
    assert {good["from_the_best"] is None, better["from_the_best"] is None} == {True, False}, "one of them is the best"

    started = start("compare", config, "--over", RATES, "--seeds", 1, "--out", broken)
    wait_for(broken / "learning_rate-0.005-seed-1" / "checkpoints" / "step-00000007")
    os.kill(started.pid, signal.SIGKILL)
    assert started.wait().returncode == -signal.SIGKILL
    assert not (broken / "compare.md").exists()
    done = compare(config, broken)
    assert done.returncode == 1
    assert read(broken) == facts
    assert read_table(broken) == read_table(whole)
    assert (broken / "compare.svg").read_bytes() == (whole / "compare.svg").read_bytes()

    run = whole / better["runs"][0]
    card = json.loads(seqloom("eval", run, "--json").stdout)
    assert card["metrics"][0]["value"] == better["value"], "eval gives the same"
    listed = [json.loads(line) for line in seqloom("runs", whole, "--json").stdout.splitlines()]
    states = {Path(one["folder"]).name: one["state"] for one in listed}
    assert states[better["runs"][0]] == states[good["runs"][0]] == "finished"
    logs = [(whole / f"{name}.log").read_text() for name in (*good["runs"], *better["runs"])]
    assert all("training, 0% done" in log and "learning the tokeniser" not in log for log in logs), "learned once"


def wait_for(path: Path) -> None:
    end = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--over", "model.encoder.family=transformer,recurent"), 'did you mean "recurrent"?'),
        (("--over", "model.encoder.num_layers=1,x"), "num_layers x: "),
        (("--over", "model.encoder.depth=1,2"), "model.encoder.depth: is not a known key"),
        (("--over", "model.encoder.num_layers=1,2", "--metric", "bleu"), "bleu is not a metric of this task"),
        (("--over", "data.train.files=x.tsv,y.tsv"), "x.tsv"),
        ((), "there is nothing to compare: give --over"),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_is_trained(
    config: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = seqloom("compare", config, *words, "--out", tmp_path / "out")
    told = done.stderr.decode()
    assert (done.returncode in (1, 2), "Traceback" in told) == (True, False)
    assert message in told
    assert not (tmp_path / "out").exists()
