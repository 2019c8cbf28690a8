"""Whatever goes wrong is answered with a sentence: what, where, and what to do; never with a traceback."""

from pathlib import Path

import pytest
from rich.console import Console

from seqloom.training import job
from seqloom.training.monitor import PlainMonitor
from small_corpora import write_config


@pytest.mark.parametrize("failure", [OSError("no room"), KeyError("gone"), OverflowError("too large")])
def test_no_report_fails_a_run(
    failure: Exception,
    corpora: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> Path:
        raise failure

    monkeypatch.setattr(job, "write_report", fail)
    path = write_config(tmp_path, corpora, "classification", "recurrent", "steps = 1")
    run = job.train(path, out=tmp_path / "run", monitor=PlainMonitor(Console(width=200)))
    assert run.weights.exists()
    assert f"the run is finished, but its report could not be written: {failure}" in capsys.readouterr().out
