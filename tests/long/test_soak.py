"""A server left alone with many clients: the short form of bench/soak.py."""

import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("workers", [1, 2])
def test_every_answer_is_right_and_none_is_lost(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    soak = runpy.run_path(str(BENCH / "soak.py"))
    seen = soak["run"](tmp_path, 20, workers)
    assert seen.wrong == []
    assert len(seen.answers) == len(soak["KINDS"])
    assert seen.left > 0
    assert seen.refused > 0
    assert seen.backlog == 0
    assert seen.drained == Counter({200: 100})
    assert seen.code == 0
