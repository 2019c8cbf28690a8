"""What training learns from the check of its data, and says of it."""

from pathlib import Path

from seqloom.config.data import ParallelData
from seqloom.training.prepare import open_config
from small_corpora import sentences


def open_pairs(folder: Path, sources: list[str], *overrides: str) -> tuple[ParallelData, list[str]]:
    (folder / "s").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    (folder / "t").write_text("".join(f"{line.upper()}\n" for line in sources), encoding="utf-8")
    (folder / "c.toml").write_text('task = "translation"\n[data.train]\nsource = "s"\ntarget = "t"\n')
    said: list[str] = []
    data = open_config(folder / "c.toml", overrides, folder / "run", said.append).data
    assert isinstance(data, ParallelData)
    return data, said


def test_the_unit_of_the_sources_is_measured(tmp_path: Path) -> None:
    single = sentences(100, seed=1)
    data, said = open_pairs(tmp_path, [*single, f"{single[0]} {single[1]}"])
    assert data.source_unit == "sentence"
    assert "1.0% of the sources have several sentences: a text will be translated by the sentence" in said
    data, said = open_pairs(tmp_path, [*single, *(f"{single[n]} {single[n + 1]}" for n in range(3))])
    assert data.source_unit == "line"
    assert "2.9% of the sources have several sentences: a text will be translated by the line" in said
    assert open_pairs(tmp_path, single, "data.source_unit=line")[0].source_unit == "line"


def test_labels_with_a_bar_are_said_to_be_labels(tmp_path: Path) -> None:
    rows = [("a film", "good|short"), ("a play", "good"), ("a song", "short|good"), ("a poem", "short")]
    (tmp_path / "t.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    (tmp_path / "c.toml").write_text(
        'task = "classification"\n[data.train]\nfiles = "t.tsv"\ncolumns = {text = 1, label = 2}\n'
    )
    said: list[str] = []
    open_config(tmp_path / "c.toml", (), tmp_path / "run", said.append)
    assert said[1] == (
        "train: 2 labels contain '|', such as \"good|short\": a record has one label here; multi-label is not supported"
    )
