"""How a training starts: which budget counts, where the run goes, and what is left of one that could not start."""

import os
from pathlib import Path

import pytest

import seqloom
from forked import seqloom as run_seqloom
from listening import Listening
from seqloom.errors import ConfigError, DataError, RunError
from seqloom.runs.run import find_base
from seqloom.tasks.configuration import load
from seqloom.training.job import train
from small_corpora import write_config


def test_a_budget_on_the_command_line_replaces_that_of_the_file_and_says_so(corpora: Path, tmp_path: Path) -> None:
    path, watch = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 50000"), Listening()
    run = train(path, ["train.epochs=0.5"], out=tmp_path / "run", monitor=watch)
    assert f"the budget that was given replaces train.steps = 50000 of {path}" in watch.heard
    config = load(run.folder / "config.toml").train
    assert (config.epochs, config.steps) == (0.5, None)
    with pytest.raises(ConfigError, match="epochs and tokens are two budgets"):
        load(path, ["train.epochs=0.5", "train.tokens=5"])


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("train.conll", "missing.conll", DataError),
        ("model_dim = 32", "model_dim = -1", ConfigError),
        ("task =", 'init = "nowhere"\ntask =', ConfigError),
        ("steps = 4", 'steps = 4\nfreeze = "encodr"', ConfigError),
    ],
    ids=["data", "configuration", "init", "freeze"],
)
def test_a_start_that_fails_leaves_no_folder(
    old: str, new: str, error: type[Exception], corpora: Path, tmp_path: Path
) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 4")
    whole = path.read_text()
    path.write_text(whole.replace(old, new, 1))
    (tmp_path / "there").mkdir()
    for out in (tmp_path / "deep" / "down" / "run", tmp_path / "there" / "run", None):
        with pytest.raises(error):
            train(path, out=out, monitor=Listening())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["tagging-recurrent.toml", "there"]
    assert not any((tmp_path / "there").iterdir())


def test_a_folder_that_was_there_is_left_alone(corpora: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 4")
    run = train(path, out=tmp_path / "run", monitor=Listening()).folder
    with pytest.raises(RunError, match="what differs"):
        train(path, ["train.seed=2"], out=run, monitor=Listening())
    assert seqloom.load(run).tag("the cat sees the dog .").tags


def test_a_run_does_not_depend_on_where_one_stands(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(tmp_path, corpora, "tagging", "recurrent", "steps = 4")
    text = path.read_text()
    for split in ("train", "valid"):
        (tmp_path / f"{split}.conll").write_bytes((corpora / f"{split}.conll").read_bytes())
        text = text.replace(f"{corpora}/{split}", split)
    path.write_text(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    first = train(path.name, monitor=Listening())
    assert first.folder == Path("runs/tagging-recurrent")
    before = (first.folder / "model.safetensors").stat().st_mtime_ns
    monkeypatch.chdir(tmp_path / "elsewhere")
    watch = Listening()
    again = train(Path(os.pardir) / path.name, monitor=watch)
    assert again.folder.resolve() == tmp_path / "runs" / "tagging-recurrent"
    assert any("is finished" in line for line in watch.heard)
    assert (again.folder / "model.safetensors").stat().st_mtime_ns == before
    assert not any((tmp_path / "elsewhere").iterdir())
    assert find_base(again.folder).resolve() == tmp_path
    done = run_seqloom("eval", again.folder)
    assert done.returncode == 0, done.stderr
