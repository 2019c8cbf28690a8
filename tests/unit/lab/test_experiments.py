"""Each experiment shows what it is there to show, with one seed; `tests/long` has more of them."""

from pathlib import Path

import pytest

from seqloom.lab.catalogue import QUESTIONS
from unit.lab.smallest import EXPECTED, check, conduct

pytestmark = pytest.mark.usefixtures("as_users_run")


def test_attention_is_exact_to_three_digits(tmp_path: Path) -> None:
    (found,) = conduct("attention", tmp_path).facts["results"]["numbers"]
    three = {name: [round(weight, 3) for weight in weights] for name, weights in found.items()}
    assert three["first"] == [0.881, 0.119, 0.0, 0.0]
    assert three["second"] == [0.018, 0.982, 0.0, 0.0]
    assert three["dictionary"] == [0.302, 0.451, 0.0, 0.247, 0.0]
    assert three["by_d"] == [0.455, 0.354, 0.101, 0.09]
    assert three["equal_keys"][3] == 1.0
    assert three["longer_key"][0] == 1.0


@pytest.mark.parametrize("name", EXPECTED)
def test_it_shows_what_it_teaches(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, seed=1)


def test_every_experiment_is_tried() -> None:
    assert {*EXPECTED, "attention"} == {*QUESTIONS}
