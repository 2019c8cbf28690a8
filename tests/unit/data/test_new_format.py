"""A format from outside: a section, a `Format` and a line in `FORMATS` are all that reading, checks and repair need."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from seqloom.config.data import Listed, TextData
from seqloom.data.corpus import FORMATS, open_split
from seqloom.data.doctor import examine
from seqloom.data.doctor.repair import repair
from seqloom.data.examples import BadRecord
from seqloom.data.formats import Format, Line, Record
from seqloom.errors import DataError

PROTEINS = ">one first\nMKV\nLAA\n>two\nMST\n>three\nMK1L\n>four\nMKVLAA\n"


class FastaFiles(Listed):
    """Sequences after lines that start with `>`."""

    format: Literal["fasta"] = "fasta"


class FastaData(TextData):
    train: tuple[FastaFiles, ...]


class Fasta(Format):
    """A record is a header and the lines of its sequence."""

    roles = ("text",)

    def split(self, lines: Iterable[Line]) -> Iterator[list[Line]]:
        group: list[Line] = []
        for line in lines:
            if line[1].startswith(">") and group:
                yield group
                group = []
            group.append(line)
        if group:
            yield group

    def parse(self, lines: list[Line]) -> Record:
        for number, text in lines[1:]:
            if not text.isalpha():
                raise BadRecord("bad_row", number, f"{text} is not a sequence of letters")
        return {"text": "".join(text for _, text in lines[1:])}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FastaData:
    monkeypatch.setitem(FORMATS, "fasta", Fasta)
    (tmp_path / "proteins.fa").write_text(PROTEINS, encoding="utf-8")
    return FastaData(train=(FastaFiles(files=("proteins.fa",)),))


def test_it_is_read_up_to_the_fault(data: FastaData, tmp_path: Path) -> None:
    (corpus,) = open_split(data, "train", tmp_path)
    (chunk,) = corpus.chunks()
    assert [(e.line, e.values["text"]) for e in chunk.examples()] == [(1, "MKVLAA"), (4, "MST"), (8, "MKVLAA")]
    with pytest.raises(DataError, match=r"proteins\.fa:7: MK1L is not a sequence of letters"):
        list(corpus)


def test_the_doctor_names_the_line_and_compares_records(data: FastaData, tmp_path: Path) -> None:
    found = {f.kind: f.places[0] for f in examine(data, tmp_path).findings}
    assert found.keys() == {"bad_row", "duplicate"}
    assert str(found["bad_row"]).endswith("proteins.fa:7")
    assert (found["duplicate"].line, found["duplicate"].message) == (8, "the same record is in line 1")


def test_a_repair_leaves_out_the_whole_record(data: FastaData, tmp_path: Path) -> None:
    fixed = repair(data, tmp_path, tmp_path / "fixed")
    assert not fixed.report.errors
    (corpus,) = open_split(fixed.data, "train", tmp_path)
    assert [e.values["text"] for e in corpus] == ["MKVLAA", "MST", "MKVLAA"]
    assert (tmp_path / "fixed" / "train" / "proteins.fa").read_text(encoding="utf-8").count(">") == 3


def test_records_can_be_held_out_and_other_files_named(data: FastaData, tmp_path: Path) -> None:
    halves = data.model_copy(update={"valid_fraction": 0.5})
    sizes = [
        sum(len(chunk) for c in open_split(halves, split, tmp_path) for chunk in c.chunks())
        for split in ("train", "valid")
    ]
    assert sum(sizes) == 3
    assert data.name_files(["a.fa", "b.fa"]) == FastaFiles(files=("a.fa", "b.fa"))
