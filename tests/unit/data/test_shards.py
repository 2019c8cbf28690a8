import json
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from encoded import make_records, write_folder
from seqloom.data import shards
from seqloom.data.shards import MANIFEST, Records, read_manifest
from seqloom.errors import DataError
from seqloom.files import write_whole

ROWS = st.lists(st.lists(st.integers(0, 65535), max_size=8), min_size=1, max_size=20)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=ROWS, second=ROWS, data=st.data())
def test_rows_come_back_as_they_were_written(tmp_path, first, second, data):
    rows = first + second
    records = make_records(tmp_path, {"text": first}, {"text": second})
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=30))
    assert len(records) == len(rows)
    assert records.measure("text").tolist() == [len(row) for row in rows]
    assert [records.read("text", i).tolist() for i in wanted] == [rows[i] for i in wanted]
    starts = [data.draw(st.integers(0, len(rows[i]))) for i in wanted]
    stops = [data.draw(st.integers(start, len(rows[i]))) for i, start in zip(wanted, starts, strict=True)]
    where = zip(wanted, starts, stops, strict=True)
    values = [value for i, start, stop in where for value in rows[i][start:stop]]
    wanted, starts, stops = (np.array(numbers, np.int64) for numbers in (wanted, starts, stops))
    assert records.gather("text", wanted, starts, stops - starts).tolist() == values


def test_columns_keep_their_own_lengths_and_numbers(tmp_path):
    records = make_records(tmp_path, {"text": [[1, 2], [3]], "score": [[0.5], [2.25]], "label": [[1], [0]]})
    assert [records.read("score", i).tolist() for i in (1, 0)] == [[2.25], [0.5]]
    assert [records.read("label", i).tolist() for i in (0, 1)] == [[1], [0]]


def test_several_folders_are_numbered_end_to_end(tmp_path):
    one = write_folder(tmp_path / "one", {"text": [[1], [2]]}, {"text": [[3]]})
    two = write_folder(tmp_path / "two", {"text": [[4]]})
    records = Records([one, two])
    assert records.sizes == [3, 1]
    assert [records.read("text", i).tolist() for i in range(4)] == [[1], [2], [3], [4]]
    assert records.locate(1) == "corpus.txt:2"
    assert records.locate(3) == "corpus.txt:1"


def test_a_folder_without_records_is_empty(tmp_path):
    records = make_records(tmp_path)
    assert len(records) == 0
    assert records.measure("text").tolist() == []


def test_more_shards_than_may_be_open(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "_OPEN_SHARDS", 2)
    records = make_records(tmp_path, *({"text": [[number]]} for number in range(9)))
    wanted = np.array([8, 0, 5, 8, 1])
    assert records.gather("text", wanted, np.zeros_like(wanted), np.ones_like(wanted)).tolist() == wanted.tolist()


def _flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("place", [0, 20, -1], ids=["size of the header", "header", "values"])
def test_one_changed_bit_is_found_and_the_file_is_named(tmp_path, place):
    folder = write_folder(tmp_path, {"text": [[1, 2, 3]]}, {"text": [[4]]})
    _flip(folder / "1.safetensors", place)
    with pytest.raises(DataError, match=r"1\.safetensors: this shard is damaged .*; delete it and encode"):
        Records([folder])


@pytest.mark.parametrize("size", [0, 5, 60])
def test_a_truncated_shard_is_found_even_without_its_hash(tmp_path, size):
    path = write_folder(tmp_path, {"text": [[1, 2, 3]]}) / "0.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"0\.safetensors: this shard is damaged"):
        shards.Shard(path)


def test_a_missing_shard_is_named(tmp_path):
    folder = write_folder(tmp_path, {"text": [[1]]})
    (folder / "0.safetensors").unlink()
    with pytest.raises(DataError, match=r"0\.safetensors: the file is missing"):
        Records([folder])


def test_a_folder_without_a_manifest_says_so(tmp_path):
    with pytest.raises(DataError, match="no encoded corpus here"):
        Records([tmp_path])


@pytest.mark.parametrize("content", ["", "{", "[]", '{"shards": [{"file": 1}]}', '{"shards": []}'])
def test_a_damaged_manifest_is_named(tmp_path, content):
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(DataError, match=r"manifest\.json: the file is damaged"):
        read_manifest(tmp_path)


def test_another_format_is_refused(tmp_path):
    path = write_folder(tmp_path, {"text": [[1]]}) / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(DataError, match="the format is 99, but this version reads 1"):
        read_manifest(tmp_path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(_descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_row_is_read_in_place(tmp_path):
    """It is a view of the mapped file: it cannot be written to and owns no memory."""
    row = make_records(tmp_path, {"text": [list(range(100))]}).read("text", 0)
    assert row.dtype == np.uint16
    assert not row.flags.owndata
    assert not row.flags.writeable
