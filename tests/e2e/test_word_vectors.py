"""Word vectors, from a configuration to a file."""

from pathlib import Path

import pytest
from rich.console import Console

from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor


@pytest.mark.parametrize(("weight", "times"), [("2", [2, 2, 2]), ("0.5", [0, 1, 0, 1]), ("1.5", [1, 2, 1, 2])])
def test_a_corpus_counts_as_often_as_its_weight_says(weight: str, times: list[int], tmp_path: Path) -> None:
    lines = [f"the {animal} saw the {thing}\n" for animal in ("cat", "dog", "fox") for thing in ("sun", "sea", "moon")]
    again = [line for number, line in enumerate(lines) for _ in range(times[number % len(times)])]
    vectors = []
    for name, text, given in (("a", lines, f"weight = {weight}"), ("b", again, "")):
        (tmp_path / f"{name}.txt").write_text("".join(text))
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f'task = "word-vectors"\nvectors = {{dim = 8, min_count = 1}}\n'
            f'[data]\nchecks = {{duplicate = "off"}}\n[data.train]\nfiles = "{name}.txt"\n{given}\n'
        )
        run = train(path, out=tmp_path / name, monitor=PlainMonitor(Console(quiet=True)))
        vectors.append((run.folder / "vectors.bin").read_bytes())
    assert vectors[0] == vectors[1]
