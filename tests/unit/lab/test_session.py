"""The lab: pages that are written, results that are kept and gone on with, wrong names."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from forked import seqloom, start
from seqloom.errors import ConfigError
from seqloom.lab.catalogue import QUESTIONS, find_experiment
from seqloom.lab.experiment import Experiment
from seqloom.lab.session import run_experiment
from unit.lab.smallest import conduct

pytestmark = pytest.mark.usefixtures("as_users_run")
TWO_MODELS = {"models": ("transformer", "lstm"), "model_dim": 16, "steps": 24, "sentences": 1000, "asked": 5}
"""Of `pairs`: two trainings of a second."""


def spell(changes: dict[str, object]) -> list[str]:
    return [word for key, value in changes.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def test_a_page_has_its_numbers_and_its_picture(tmp_path: Path) -> None:
    shown = run_experiment("attention", folder=tmp_path)
    names = {path.suffix for path in tmp_path.iterdir() if path.is_file()}
    assert names == {".md", ".svg", ".json"}
    page = next(tmp_path.glob("*.md")).read_text(encoding="utf-8")
    assert "0.881" in page
    assert shown.facts["command"] in page


def test_what_was_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_experiment("attention", folder=tmp_path)

    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(type(find_experiment("attention")), "measure", refuse)
    assert run_experiment("attention", folder=tmp_path).facts == first.facts


def test_a_seed_gives_the_same_numbers_alone_and_among_others(tmp_path: Path) -> None:
    changes = ["dims=[4, 64]", "queries=50", "depths=[2, 4]", "model_dim=16", "repetitions=1"]
    many = run_experiment("scale", changes, seeds=3, folder=tmp_path / "many")
    alone = run_experiment("scale", changes, seed=2, folder=tmp_path / "alone")
    for unit, found in many.facts["results"].items():
        assert found[1:2] == alone.facts["results"][unit]
        assert found[0] != found[1]
    assert " ± " in many.text
    assert " ± " not in alone.text


def test_a_killed_experiment_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    whole = conduct("pairs", tmp_path / "whole", **TWO_MODELS)
    folder = tmp_path / "killed"
    first, second = (folder / "units" / f"{name}.seed-1" for name in TWO_MODELS["models"])
    command = start("lab", "pairs", *spell(TWO_MODELS), "--jobs", 1, "--out", folder)
    deadline = time.monotonic() + 300
    while not (second / "run" / "log.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(command.pid, signal.SIGKILL)
    assert command.wait().returncode == -signal.SIGKILL
    kept = first.with_suffix(".seed-1.json").stat().st_mtime_ns
    assert not second.with_suffix(".seed-1.json").exists()
    done = seqloom("lab", "pairs", *spell(TWO_MODELS), "--jobs", 1, "--out", folder)
    assert done.returncode == 0, done.stderr
    assert b"1 of 2 were measured before" in done.stderr
    assert first.with_suffix(".seed-1.json").stat().st_mtime_ns == kept
    assert json.loads((folder / "pairs.json").read_text())["results"] == whole.facts["results"]


def test_other_parameters_are_measured_anew(tmp_path: Path) -> None:
    found = [conduct("scale", tmp_path, dims=dims, queries=50).facts for dims in ((4, 64), (4, 16), (4, 64))]
    assert found[0]["results"] != found[1]["results"]
    assert found[0] == found[2]


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_has_an_experiment(name: str) -> None:
    experiment = find_experiment(name)
    assert isinstance(experiment, Experiment)
    assert experiment.name == name
    assert experiment.list_units(experiment.parameters.model_validate(dict(experiment.smallest)))


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("attentoin", [], 'there is no experiment "attentoin"; there are attention, scale'),
        ("scale", ["dim=4"], "lab scale: there is no parameter dim; there are: dims"),
    ],
)
def test_wrong_names_are_said(name: str, changes: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        run_experiment(name, changes, folder=tmp_path)
