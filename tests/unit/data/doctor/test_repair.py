"""A repaired copy: what is in it, what the log says, and that pairs still belong together."""

import gzip
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from seqloom.config.data import Data, LabelledData, ParallelData, TaggedData, TextData
from seqloom.data.corpus import open_split
from seqloom.data.doctor.repair import Repair, repair
from seqloom.errors import DataError
from shared_data import corpus


def run(kind: type[Any], config: str, base: Path) -> tuple[Repair, list[dict[str, Any]]]:
    data: Data = kind.model_validate(tomllib.loads(config))
    done = repair(data, base, base / "out")
    log = (base / "out" / "changes.jsonl").read_text(encoding="utf-8").splitlines()
    return done, [json.loads(line) for line in log]


def records(data: Data, base: Path) -> list[tuple[Any, ...]]:
    return [tuple(e.values.values()) for c in open_split(data, "train", base) for e in c]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\r\n", "one\ntwo\n"),
        (b"a\x00b\x1bc\x0bd\xe2\x80\xa8e\rf\n", "abc d e f\n"),
        ("Cafe\u0301\n".encode(), "Café\n"),
        ("één café\nzwei\n".encode("latin-1"), "één café\nzwei\n"),
        ("“quoted”\n".encode("cp1252"), "“quoted”\n"),
        ("één\n".encode() + b"caf\xe9\n", "één\ncaf\ufffd\n"),
        ("één\nzwei\n".encode("utf-16"), "één\nzwei\n"),
        (b"one\rtwo\rthree", "one\ntwo\nthree\n"),
        (gzip.compress(b"one\ntwo", mtime=0), "one\ntwo\n"),
        (b"one\n" + b"x" * 2_000_000 + b"\nthree\n", "one\n\nthree\n"),
    ],
)
def test_lines_are_repaired(raw: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt.gz").write_bytes(raw)
    done, _ = run(TextData, 'train = {files = "t.txt.gz"}', tmp_path)
    assert (tmp_path / "out/train/t.txt").read_text(encoding="utf-8") == expected
    assert done.report.errors == ()


def test_the_log_names_every_change_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("eins\nzw\x00ei\ndrei\n\nfünf\n")
    (tmp_path / "t").write_text("one\ntwo\n\n\nfive\n")
    done, log = run(ParallelData, 'train = {source = "s", target = "t"}', tmp_path)
    assert [(Path(e["file"]).name, e["line"], e["kind"], e["change"]) for e in log] == [
        ("s", 2, "nul", "repaired"),
        ("s", 3, "one_sided_blank", "dropped"),
        ("t", 3, "one_sided_blank", "dropped"),
    ]
    assert (log[0]["before"], log[0]["after"]) == ("zw\x00ei", "zwei")
    assert done.changes == {("nul", "repaired"): 1, ("one_sided_blank", "dropped"): 2}
    assert records(done.data, tmp_path) == [("eins", "one"), ("zwei", "two"), ("", ""), ("fünf", "five")]


def test_the_weight_of_a_finding_decides_what_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a\tx\nb\ty\na\tx\n")
    train = 'train = {format = "tsv", files = "t", columns = {source = 1, target = 2}}'
    done, log = run(ParallelData, f'checks = {{duplicate = "error"}}\n{train}', tmp_path)
    assert records(done.data, tmp_path) == [("a", "x"), ("b", "y")]
    assert [(e["line"], e["kind"]) for e in log] == [(3, "duplicate")]


@pytest.mark.parametrize(("side", "other"), [("de", "en"), ("en", "de")])
def test_a_shift_is_cut_out_and_every_pair_is_a_true_one(side: str, other: str, tmp_path: Path) -> None:
    texts = {}
    for language in ("de", "en"):
        with gzip.open(corpus(f"multi30k/train.{language}.gz"), "rt", encoding="utf-8", newline="\n") as stream:
            texts[language] = stream.read().split("\n")[:9000]
    true = set(zip(texts["de"], texts["en"], strict=True))
    damaged = {side: texts[side][:3000] + texts[side][3001:6000] + ["an inserted line"] * 40 + texts[side][6000:]}
    for language, lines in (texts | damaged).items():
        (tmp_path / language).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    done, log = run(ParallelData, 'train = {source = "de", target = "en"}', tmp_path)
    pairs = records(done.data, tmp_path)
    assert len(pairs) > 9000 - 60
    assert set(pairs) <= true
    dropped = [e["before"] for e in log if Path(e["file"]).name == side and e["kind"] == "unequal_lines"]
    assert dropped.count("an inserted line") == 40
    assert done.report.errors == ()
    assert {Path(e["file"]).name for e in log} == {side, other}


def test_an_alignment_goes_with_its_pair(tmp_path: Path) -> None:
    for name, text in {"s": "a b\nc\nd\n", "t": "x y\nz\n\n", "a": "0-1 1-0\n1-0\n\n"}.items():
        (tmp_path / name).write_text(text)
    done, log = run(ParallelData, 'train = {source = "s", target = "t", alignment = "a"}', tmp_path)
    assert records(done.data, tmp_path) == [("a b", "x y", "0-1 1-0")]
    kinds = {(Path(e["file"]).name, e["line"]): e["kind"] for e in log}
    assert kinds == {(side, 2): "bad_alignment" for side in "sta"} | {(side, 3): "one_sided_blank" for side in "sta"}


def test_records_of_many_lines_go_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "t.conll").write_text("Ada N\nran V\n\nso\nis X\n\nhe P\n")
    done, log = run(TaggedData, 'train = {files = "t.conll"}', tmp_path)
    assert records(done.data, tmp_path) == [(("Ada", "ran"), ("N", "V")), (("he",), ("P",))]
    assert [(e["line"], e["before"]) for e in log] == [(4, "so"), (5, "is X")]


def test_a_header_and_quoted_cells_stay(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text,label\n"a\nb",1\nc\nd,0\n')
    done, _ = run(LabelledData, 'train = {format = "csv", files = "t.csv"}', tmp_path)
    assert (tmp_path / "out/train/t.csv").read_text() == 'text,label\n"a\nb",1\nd,0\n'
    assert done.report.errors == ()


def test_a_parquet_table_becomes_json_lines(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"body": ["good", None, "b\x00ad"], "score": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "t.parquet")
    config = 'train = {format = "parquet", files = "t.parquet", columns = {text = "body", label = "score"}}'
    done, log = run(LabelledData, config, tmp_path)
    assert records(done.data, tmp_path) == [("good", "1"), ("bad", "3")]
    assert [(e["line"], e["kind"], e["change"]) for e in log] == [(2, "bad_value", "dropped"), (3, "nul", "repaired")]


def test_files_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.txt").write_text(f"from {folder}\n")
    done, _ = run(TextData, 'train = {files = ["a/t.txt", "b"]}', tmp_path)
    assert records(done.data, tmp_path) == [("from a",), ("from b",)]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("x\n")
    data = TextData.model_validate({"train": {"files": "t.txt"}})
    with pytest.raises(DataError, match="not empty"):
        repair(data, tmp_path, tmp_path)
