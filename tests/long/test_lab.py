"""Each experiment shows the same with other seeds, and the same numbers however many models are trained at once."""

from pathlib import Path

import pytest

from seqloom.lab.session import run_experiment
from unit.lab.smallest import EXPECTED, check

pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", EXPECTED)
def test_it_shows_what_it_teaches_with_every_seed(name: str, seed: int, tmp_path: Path) -> None:
    check(name, tmp_path, seed)


def test_models_trained_at_once_are_those_trained_one_after_the_other(tmp_path: Path) -> None:
    changes = ['models=["transformer", "convolution"]', "model_dim=16", "steps=24", "sentences=1000", "asked=5"]
    found = [run_experiment("pairs", changes, folder=tmp_path / str(jobs), jobs=jobs).facts for jobs in (1, 2)]
    assert found[0] == found[1]
