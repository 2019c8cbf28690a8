"""Whatever bytes a file holds, in whatever format it is read: a report, an error, a repaired copy, never a crash."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.config.data import LabelledData, ParallelData, TaggedData, TextData
from seqloom.data.corpus import open_split
from seqloom.data.doctor import Report, examine
from seqloom.data.doctor.repair import repair
from seqloom.data.examples import UNREADABLE
from seqloom.errors import DataError

FORMATS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "text": (TextData, {"files": "a"}),
    "parallel": (ParallelData, {"source": "a", "target": "b"}),
    "pairs as tsv": (ParallelData, {"format": "tsv", "files": "a", "columns": {"source": 1, "target": 2}}),
    "labels as tsv": (LabelledData, {"files": "a", "columns": {"text": 1, "label": 2}}),
    "labels as csv": (LabelledData, {"format": "csv", "files": "a", "columns": {"text": 1, "second": 2, "label": 3}}),
    "csv with a header": (LabelledData, {"format": "csv", "files": "a"}),
    "jsonl": (LabelledData, {"format": "jsonl", "files": "a"}),
    "parquet": (LabelledData, {"format": "parquet", "files": "a"}),
    "label-first": (LabelledData, {"format": "label-first", "files": "a"}),
    "conll": (TaggedData, {"files": "a"}),
    "conllu": (TaggedData, {"format": "conllu", "files": "a"}),
    "tags in files": (TaggedData, {"format": "parallel", "words": "a", "tags": "b"}),
    "tags as jsonl": (TaggedData, {"format": "jsonl", "files": "a"}),
}
pieces = st.one_of(
    st.sampled_from([b"word", b" ", b"\t", b"\n", b"\n\n", b"\r\n", b"\r", b",", b'"', b"1", b"N", b"#", b"1-2\t"]),
    st.sampled_from([b'{"text": "a", "label": 1}\n', b'{"words": ["a"], "tags": ["N"]}\n', b"text,label\n"]),
    st.sampled_from([b"{", b"}", b"\\ud800", b"[]", b"null", b"\x00", b"\xff", b"\xc3", b"\xa9", b"\x1f\x8b"]),
    st.sampled_from(["é", "\u2028", "e\u0301", "\ufeff"]).map(str.encode),
)
contents = st.one_of(st.lists(pieces, max_size=25).map(b"".join), st.binary(max_size=80))


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=20)
@given(left=contents, right=contents, valid=contents)
def test_any_bytes(name: str, left: bytes, right: bytes, valid: bytes) -> None:
    kind, corpus = FORMATS[name]
    other = {key: {"a": "c", "b": "d"}.get(value, value) for key, value in corpus.items() if key != "columns"}
    data = kind.model_validate({"train": corpus, "valid": corpus | other, "max_line_bytes": 60})
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        for file, content in (("a", left), ("b", right), ("c", valid), ("d", right)):
            (base / file).write_bytes(content)
        report = examine(data, base)
        assert Report.model_validate_json(report.model_dump_json()) == report

        found = {finding.kind for finding in report.findings} & (UNREADABLE.keys() - {"no_records"})
        counts: dict[str, int] = {}
        unreadable = False
        for split in report.splits:
            try:
                counts[split.split] = sum(1 for c in open_split(data, split.split, base) for _ in c)  # type: ignore[arg-type]
            except DataError:
                unreadable = True
        assert unreadable == bool(found), "the doctor and the reader agree on what can be read"
        for split in report.splits:
            assert counts.get(split.split, split.records) == split.records

        with suppress(DataError):
            done = repair(data, base, base / "out")
            beyond = {"empty_file", "no_records", "not_text", "unreadable_file", "truncated_file", "unknown_column"}
            left_over = {error.kind for error in done.report.errors}
            assert left_over <= beyond | {"single_label", "same_sides", "unequal_lines", "missing_extra"}
