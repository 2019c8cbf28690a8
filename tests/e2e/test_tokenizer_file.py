"""A tokeniser that exists is named as all files of a configuration are: from the folder of the configuration."""

from pathlib import Path

from rich.console import Console

from seqloom.tasks.configuration import load_resolved
from seqloom.text import Tokenizer
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from small_corpora import write_config


def test_a_tokenizer_is_found_beside_the_configuration(corpora: Path, tmp_path: Path) -> None:
    silent = PlainMonitor(Console(quiet=True))
    path = write_config(tmp_path, corpora, "classification", "recurrent", "steps = 2")
    first = train(path, out=tmp_path / "first", monitor=silent)
    named = ['tokenizer={kind = "file", path = "first/tokenizer.json"}']
    second = train(path, named, out=tmp_path / "second", monitor=silent)
    known, found = (Tokenizer.load(run.folder / "tokenizer.json").fingerprint for run in (first, second))
    assert found == known
    assert load_resolved(second.folder / "config.toml").tokenizer.path == "first/tokenizer.json"
