"""A training tells how far it is and how good its best model is; `seqloom runs` lists what was trained."""

import json
import re
from pathlib import Path

import pytest

from forked import start
from listening import Listening
from seqloom.runs.listing import list_runs
from seqloom.runs.run import hold
from seqloom.training import monitor as monitors
from seqloom.training.job import train
from small_corpora import write_config

STEPS = "steps = 6\nvalidate_every = 2"


def learn(folder: Path, corpora: Path, task: str, out: str, stop_after: int = 100) -> list[str]:
    """What a short training says; it may be stopped before its end."""
    path = write_config(folder, corpora, task, "recurrent", STEPS)
    asked, watch = iter(range(1000)), Listening()
    train(path, out=folder / "runs" / out, monitor=watch, should_stop=lambda: next(asked) >= stop_after)
    return watch.heard


@pytest.mark.parametrize(
    ("task", "metric"), [("tagging", "accuracy"), ("translation", "bleu"), ("language-model", "loss")]
)
def test_the_best_so_far_is_told_with_its_measure(
    task: str, metric: str, corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitors, "_PAUSE", 0.0)
    heard = learn(tmp_path, corpora, task, "one")
    assert any(f"(best {metric} so far)" in line for line in heard)
    steps = [line for line in heard if "tokens/s" in line]
    assert re.search(r"step 4  epoch \d.* of \d", steps[3])
    assert re.search(rf"best {metric} \d", steps[3])
    best = next(line for line in heard if line.startswith("finished at step 6"))
    (listed,) = list_runs(tmp_path)
    assert listed.best is not None
    assert f"best {metric} {listed.best.value:.3f} at step {listed.best.step}" in best


def test_the_list_of_runs_says_which_are_finished_and_which_can_go_on(corpora: Path, tmp_path: Path) -> None:
    learn(tmp_path, corpora, "tagging", "done")
    learn(tmp_path, corpora, "tagging", "deep/er/stopped", stop_after=3)
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "runs" / "other" / "config.toml").write_text('title = "no run of ours"\n')
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.toml").write_text("task = \n")
    with (tmp_path / "runs" / "done" / "log.jsonl").open("ab") as file:
        file.write(b'[]\n{"valid": 3, "step": 1}\n\xff\n{"step": 7, "val')  # a damaged line does not hide the others
    found = {Path(run.folder).name: run for run in list_runs(tmp_path / "runs")}
    assert {name: run.state for name, run in found.items()} == {
        "done": "finished",
        "stopped": "resumable",
        "broken": "unreadable",
    }
    done, stopped = found["done"], found["stopped"]
    assert (done.task, done.family, done.steps) == ("tagging", "recurrent", 6)
    assert done.best is not None
    assert done.best.metric == "accuracy"
    assert done.minutes is not None
    assert done.minutes > 0.0
    assert stopped.steps is not None
    assert 0 < stopped.steps < 6
    with (tmp_path / "runs" / "done" / "lock").open("w") as file:
        hold(file)
        assert next(list_runs(tmp_path / "runs" / "done")).state == "in training"

    shown = start("runs", tmp_path / "runs").wait()
    assert shown.returncode == 0
    assert "resumable" in shown.stdout.decode()
    assert "accuracy 0." in shown.stdout.decode() or "accuracy 1." in shown.stdout.decode()
    lines = start("runs", tmp_path / "runs", "--json").wait().stdout.decode().splitlines()
    assert {json.loads(line)["state"] for line in lines} == {"finished", "resumable", "unreadable"}


def test_where_there_are_no_runs_a_sentence_says_so(tmp_path: Path) -> None:
    empty = start("runs", tmp_path).wait()
    assert (empty.returncode, empty.stdout) == (
        0,
        f"there are no runs in {tmp_path}; `seqloom train CONFIG` makes one\n".encode(),
    )
    missing = start("runs", tmp_path / "none").wait()
    assert missing.returncode == 2
    assert b"no such folder" in missing.stderr
