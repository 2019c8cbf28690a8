"""Reports: what they count, that they are remembered, and that they come back from JSON."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from seqloom.config.data import LabelledData, ParallelData, TextData
from seqloom.data.doctor import Report, examine
from seqloom.data.doctor import characters as characters_module
from seqloom.data.doctor import split as split_module


def text_data(base: Path, **splits: list[str]) -> TextData:
    for split, lines in splits.items():
        (base / f"{split}.txt").write_text("".join(line + "\n" for line in lines))
    return TextData.model_validate({split: {"files": f"{split}.txt"} for split in splits})


def test_sizes_and_coverage(tmp_path: Path) -> None:
    data = text_data(tmp_path, train=["the cat sat", "the dog"], test=["the bird sat", "ü"])
    train, test = examine(data, tmp_path).splits
    column = train.columns["text"]
    assert (train.records, train.files, column.words, column.characters, column.bytes) == (2, 1, 5, 18, 18)
    assert (column.distinct_words, column.lengths.median, column.lengths.longest) == (4, 2, 3)
    coverage = test.columns["text"].coverage
    assert coverage is not None
    assert (coverage.words, coverage.unseen_words) == (0.5, ("bird", "ü"))
    assert coverage.unseen_characters == ("b (U+0062)", "i (U+0069)", "r (U+0072)", "ü (U+00FC)")


def test_counts_are_of_all_and_places_of_the_first(tmp_path: Path) -> None:
    report = examine(text_data(tmp_path, train=["same"] * 100 + ["other"]), tmp_path)
    [finding] = report.findings
    assert (finding.kind, finding.count, finding.severity) == ("duplicate", 99, "warn")
    assert [place.line for place in finding.places] == [2, 3, 4, 5, 6]


def test_a_report_comes_back_from_json(tmp_path: Path) -> None:
    report = examine(text_data(tmp_path, train=["a", "a", ""], test=["a b"]), tmp_path)
    assert report.findings
    assert Report.model_validate_json(report.model_dump_json()) == report
    assert json.loads(report.model_dump_json())["forecast"] is None


def test_where_nothing_can_be_held_out_the_reason_and_the_remedy_are_said(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("".join(f"line {n}\n" for n in range(400)))
    (tmp_path / "table").write_text("text\tlabel\n" + "same\tA\nother\tB\n" * 40)
    text = TextData.model_validate({"train": {"files": "t"}, "valid_fraction": 0.1})
    table = LabelledData.model_validate({"train": {"format": "tsv", "files": "table"}, "valid_fraction": 0.001})
    for data, reason in (
        (text, "runs of 50 lines, and the first is lines 451 to 500; choose a larger fraction, or name files"),
        (table, "records are drawn by their input, equal ones together, and there are too few"),
    ):
        [message] = [one.places[0].message for one in examine(data, tmp_path).findings if one.kind == "no_records"]
        assert f"data.valid_fraction = {data.valid_fraction}: " in message
        assert reason in message
    large_enough = text.model_copy(update={"valid_fraction": 0.2})
    assert [split.records for split in examine(large_enough, tmp_path).splits] == [350, 50]


def test_labels_are_counted(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("1 a\n0 b\n1 c\n")
    data = LabelledData.model_validate({"train": {"format": "label-first", "files": "t"}})
    [train] = examine(data, tmp_path).splits
    assert train.labels == {"1": 2, "0": 1}


def test_an_unchanged_corpus_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = text_data(tmp_path, train=["one", "two", "two"])
    os.utime(tmp_path / "train.txt", (1, 1))
    first = examine(data, tmp_path, cache=tmp_path / "cache")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("read again")

    with monkeypatch.context() as patch:
        patch.setattr("seqloom.data.doctor.examination.examine_into", refuse)
        patch.setattr("hashlib.file_digest", refuse)
        assert examine(data, tmp_path, cache=tmp_path / "cache") == first


@pytest.mark.parametrize("touch", [True, False])
def test_a_change_is_noticed(touch: bool, tmp_path: Path) -> None:
    data = text_data(tmp_path, train=["one", "two", "two"])
    cache = tmp_path / "cache"
    assert len(examine(data, tmp_path, cache=cache).findings) == 1
    (tmp_path / "train.txt").write_text("one\ntwo\nsix\n")
    if touch:
        os.utime(tmp_path / "train.txt", (1, 1))
    assert examine(data, tmp_path, cache=cache).findings == ()
    stricter = data.model_copy(update={"max_length": 2})
    assert [f.kind for f in examine(stricter, tmp_path, cache=cache).findings] == ["long_record"]


def test_a_damaged_cache_is_no_obstacle(tmp_path: Path) -> None:
    data = text_data(tmp_path, train=["one"])
    cache = tmp_path / "cache"
    first = examine(data, tmp_path, cache=cache)
    for file in cache.iterdir():
        file.write_text("{")
    assert examine(data, tmp_path, cache=cache) == first


def test_limits_are_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_module, "LIMIT", 3)
    monkeypatch.setattr(characters_module, "VOCABULARY_LIMIT", 3)
    [train] = examine(text_data(tmp_path, train=["a", "b", "c", "a", "d"]), tmp_path).splits
    assert train.records == 5
    assert train.compared == 3
    assert not train.columns["text"].vocabulary_complete


def test_usual_ratios_are_not_wild(tmp_path: Path) -> None:
    """Chinese has a third of the characters of English; that alone is no fault."""
    (tmp_path / "s").write_text("".join("一二三四五六七八九十" * (1 + i % 4) + "\n" for i in range(50)))
    (tmp_path / "t").write_text(
        "".join("some fifty characters of the English translation " * (1 + i % 4) + "\n" for i in range(50))
    )
    data = ParallelData.model_validate({"train": {"source": "s", "target": "t"}})
    assert "length_ratio" not in {f.kind for f in examine(data, tmp_path).findings}


def test_progress_adds_up_to_the_size_of_the_files(tmp_path: Path) -> None:
    data = text_data(tmp_path, train=["x" * 1000] * 3000, test=["y"])
    advances: list[int] = []
    examine(data, tmp_path, advance=advances.append)
    assert sum(advances) == sum(path.stat().st_size for path in tmp_path.iterdir())
