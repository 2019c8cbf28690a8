"""The history of a run, read from its folder: while it is trained, after it was killed, and when it is finished."""

import json
import shlex
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seqloom
from forked import seqloom as command
from listening import Listening
from seqloom.runs.history import History, read_history
from seqloom.runs.listing import list_runs
from seqloom.runs.run import TrainingRun, hold
from seqloom.training.job import train
from small_corpora import write_config
from small_runs import Runs

TASKS = [
    "translation",
    "classification",
    "regression",
    "tagging",
    "language-model",
    "masked-language-model",
    "bidirectional-language-model",
]


class Watching(Listening):
    """Reads the history at some steps, as a page does."""

    def __init__(self, folder: Path, steps: set[int], die_at: int = -1) -> None:
        super().__init__()
        self._history, self._steps, self._die_at = History(folder), steps, die_at
        self.read: dict[int, dict[str, Any]] = {}

    def step(self, progress: Any, outcome: Any, spent: float) -> None:
        super().step(progress, outcome, spent)
        if progress.step in self._steps:
            self.read[progress.step] = self._history.read()
        if progress.step == self._die_at:
            raise KeyboardInterrupt

    def read_again(self) -> dict[str, Any]:
        return self._history.read()


def test_a_training_is_seen_while_it_goes_on(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 20\nvalidate_every = 5\nsnapshots = 3")
    watch = Watching(tmp_path / "run", {1, 7, 13})
    train(path, out=tmp_path / "run", monitor=watch)
    for step, history in watch.read.items():
        assert history["state"] == "in training"
        assert history["train"]["steps"] == list(range(1, step + 1))
        assert history["valid"]["steps"] == [at for at in (5, 10, 15, 20) if at < step]
    assert [moment["name"] for moment in watch.read[13]["moments"] if moment["kind"] == "snapshot"] == [
        "step-00000000",
        "step-00000010",
    ]
    end = watch.read_again()
    assert end["state"] == "finished"
    assert end == read_history(tmp_path / "run")  # reading on gives what reading anew gives
    (listed,) = list_runs(tmp_path / "run")
    assert listed.best is not None
    assert (end["score"]["metric"], end["score"]["value"], end["score"]["step"]) == (
        listed.best.metric,
        listed.best.value,
        listed.best.step,
    )
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    measured = {line["step"]: line["layers"] for line in log if "layers" in line}
    assert end["layers"]["steps"] == [*measured] == [1, 11]
    assert end["layers"]["norms"]["head"] == [norms["head"] for norms in measured.values()]
    total = next(line["norm"] for line in log if line.get("step") == 1)
    assert sum(norms[0] ** 2 for norms in end["layers"]["norms"].values()) ** 0.5 == pytest.approx(total, rel=1e-5)


def test_restarts_are_marked_with_their_reasons(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 20\nvalidate_every = 5")
    run = tmp_path / "run"
    reader = History(run)
    with pytest.raises(KeyboardInterrupt):  # as if it were killed: nothing is saved, nothing is said
        train(path, out=run, monitor=Watching(run, set(), die_at=9))
    broken = reader.read()
    assert (broken["state"], broken["progress"]["step"]) == ("resumable", 9)
    assert broken["restarts"] == []
    asked = iter(range(100))
    train(path, out=run, monitor=Listening(), should_stop=lambda: next(asked) >= 5)
    stopped = reader.read()  # the log was cut to step 7, and went on from there
    assert stopped["train"]["steps"] == list(range(1, stopped["progress"]["step"] + 1))
    assert [(mark["step"], mark["why"]) for mark in stopped["restarts"]] == [(7, "it was broken off")]
    train(path, out=run, monitor=Listening())
    train(path, ["train.steps=30"], out=run, monitor=Listening())
    end = reader.read()
    assert [mark["why"] for mark in end["restarts"]] == [
        "it was broken off",
        "it was stopped",
        "it was finished, and given a larger budget",
    ]
    assert end["train"]["steps"] == list(range(1, 31))
    assert end == read_history(run)


def test_a_run_that_is_looked_at_can_be_trained(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    held = threading.Event()

    def look() -> None:
        with (folder / "lock").open("w") as file:
            hold(file)
            held.set()
            time.sleep(0.08)

    thread = threading.Thread(target=look)
    thread.start()
    held.wait()
    with TrainingRun(folder).lock():
        assert not thread.join()


@pytest.mark.parametrize("task", [*TASKS, "running-text"])
def test_every_task_shows_answers_labels_and_data(task: str, runs: Runs) -> None:
    history = read_history(runs(task))
    assert history["score"]["split"] == "validation"
    samples = history["samples"]["at"][-1]["samples"] if history["samples"]["at"] else []
    assert bool(samples) == (task != "bidirectional-language-model")
    model = seqloom.load(runs(task))
    best = next((one for one in history["samples"]["at"] if one["step"] == history["score"]["step"]), None)
    for sample in best["samples"] if best else ():
        assert sample["text"]
        match task:
            case "translation":
                assert model.translate(sample["text"]).text == sample["answer"]
            case "classification":
                assert model.classify(sample["text"]).label == sample["answer"]
                assert sample["wanted"] in ("short", "long")
            case "regression":
                assert float(sample["answer"]) == pytest.approx(model.classify(sample["text"]).value, rel=0.01)
            case "tagging":
                words = zip(sample["text"].split(), model.tag(sample["text"]).tags, strict=True)
                assert sample["answer"] == " ".join(map("/".join, words))
            case "language-model":
                assert model.generate(sample["text"], max_length=24).text.split() == sample["answer"].split()
            case "masked-language-model":
                tokens = [found.candidates[0].token for found in model.fill(sample["text"]).masks]
                assert sample["answer"].split(" · ") == tokens
    assert (history["labels"] is not None) == (task in ("classification", "tagging"))
    if history["labels"]:
        card = model.evaluate(split="valid", samples=2)
        found = {score.label: (score.f1, score.wanted, score.given) for score in card.labels}
        shown = {row["label"]: (row["f1"], row["wanted"], row["given"]) for row in history["labels"]["rows"]}
        assert shown.keys() == found.keys()
        for label, numbers in shown.items():
            assert numbers == pytest.approx(found[label], abs=1e-6)
    assert [split["records"] for split in history["data"]["splits"]] == [400, 60]


@pytest.mark.parametrize("task", TASKS)
def test_what_is_said_about_its_use_works(task: str, runs: Runs) -> None:
    folder = runs(task)
    history = read_history(folder)
    model = seqloom.load(folder)
    assert len(history["use"]) >= 3
    for use in history["use"]:
        if "explore" in use["command"]:  # it waits for a browser
            continue
        shell = use["command"].split(" | ")
        text = subprocess.run(["sh", "-c", shell[0]], capture_output=True, check=True).stdout if len(shell) > 1 else b""
        done = command(*shlex.split(shell[-1])[1:], stdin=text)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
        assert eval(use["python"], {"model": model, "seqloom": seqloom}) is not None


def test_what_cannot_be_found_is_said(runs: Runs, tmp_path: Path, copy_run: Callable[[Path], Path]) -> None:
    folder = copy_run(runs("tagging"))
    history = read_history(folder)
    assert "no longer in the run's folder data" in history["data"]["note"]
    (folder / "config.toml").write_text("task = ")
    assert "not TOML" in read_history(folder)["notes"][0]


@pytest.fixture
def copy_run(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a run without its data."""

    def copy(folder: Path) -> Path:
        new = tmp_path / "copy"
        new.mkdir()
        for path in folder.iterdir():
            if path.is_file():
                (new / path.name).write_bytes(path.read_bytes())
        return new

    return copy
