"""The lab: numbers that can be checked by hand, pages that are written, results that are kept."""

import json
from pathlib import Path

import pytest

from seqloom.errors import ConfigError
from seqloom.lab.catalogue import QUESTIONS, find_experiment
from seqloom.lab.experiment import Experiment
from seqloom.lab.session import run_experiment


def test_attention_is_exact_to_three_digits(tmp_path: Path) -> None:
    (found,) = run_experiment("attention", folder=tmp_path).facts["results"]["numbers"]
    three = {name: [round(weight, 3) for weight in weights] for name, weights in found.items()}
    assert three["first"] == [0.881, 0.119, 0.0, 0.0]
    assert three["second"] == [0.018, 0.982, 0.0, 0.0]
    assert three["dictionary"] == [0.302, 0.451, 0.0, 0.247, 0.0]
    assert three["by_d"] == [0.455, 0.354, 0.101, 0.09]
    assert three["equal_keys"][3] == 1.0
    assert three["longer_key"][0] == 1.0


def test_without_a_scale_one_key_takes_all_and_the_gradient_is_gone(tmp_path: Path) -> None:
    smallest = find_experiment("scale").smallest
    changes = [f"{key}={json.dumps(value)}" for key, value in smallest.items()]
    shown = run_experiment("scale", changes, folder=tmp_path)
    held = {claim["said"]: claim["holds"] for claim in shown.facts["claims"]}
    assert held
    assert all(held.values()), held


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
