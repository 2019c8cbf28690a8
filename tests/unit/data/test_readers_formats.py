"""Every format: the values by role, the line of each record, and what it refuses."""

import csv
import io
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.config.data import Data, LabelledData, ParallelData, TaggedData, TextData
from seqloom.data.corpus import open_split
from seqloom.data.examples import Example
from seqloom.errors import DataError


def read(kind: type[Any], config: str, base: Path) -> list[Example]:
    data: Data = kind.model_validate(tomllib.loads(config))
    return [example for corpus in open_split(data, "train", base) for example in corpus]


def rows(examples: list[Example]) -> list[tuple[int, Any]]:
    return [(e.line, tuple(e.values.values())) for e in examples]


@pytest.fixture
def write(tmp_path: Path) -> Any:
    return lambda name, text: (tmp_path / name).write_text(text, encoding="utf-8", newline="")


def test_plain_text_keeps_every_line(write: Any, tmp_path: Path) -> None:
    write("a.txt", "one\n\n two \n")
    write("b.txt", "three")
    examples = read(TextData, 'train = {files = ["a.txt", "b.txt"]}', tmp_path)
    assert [(Path(e.path).name, e.line, e.values["text"]) for e in examples] == [
        ("a.txt", 1, "one"),
        ("a.txt", 2, ""),
        ("a.txt", 3, " two "),
        ("b.txt", 1, "three"),
    ]


def test_parallel_files(write: Any, tmp_path: Path) -> None:
    write("a.de", "eins\nzwei\n")
    write("a.en", "one\r\ntwo\r\n")
    examples = read(ParallelData, 'train = {source = "a.de", target = "a.en"}', tmp_path)
    assert [dict(e.values) for e in examples] == [
        {"source": "eins", "target": "one"},
        {"source": "zwei", "target": "two"},
    ]


def test_parallel_files_of_any_size_stay_in_step(tmp_path: Path) -> None:
    """The blocks of the two files end at different lines."""
    source = [f"{i} " + "x" * (i % 300) for i in range(9000)]
    target = [f"{i} " + "y" * (i % 17) for i in range(9000)]
    (tmp_path / "s").write_text("\n".join(source) + "\n")
    (tmp_path / "t").write_text("\n".join(target))
    examples = read(ParallelData, 'train = {source = "s", target = "t"}', tmp_path)
    assert [(e.line, e.values["source"], e.values["target"]) for e in examples] == [
        (i + 1, s, t) for i, (s, t) in enumerate(zip(source, target, strict=True))
    ]


def test_unequal_files_are_refused_with_both_counts(write: Any, tmp_path: Path) -> None:
    write("a.de", "eins\nzwei\n")
    write("a.en", "one\n")
    with pytest.raises(DataError, match=r"a\.de:2: the file has 2 lines, but .*a\.en has 1"):
        read(ParallelData, 'train = {source = "a.de", target = "a.en"}', tmp_path)


@pytest.mark.parametrize(
    ("format", "header", "columns", "text"),
    [
        ("tsv", "", "{text = 1, label = 3}", 'a "b\tx\tpos\nc\ty\t neg \n'),
        ("tsv", "", '{text = "t", label = "l"}', 't\tu\tl\na "b\tx\tpos\nc\ty\tneg\n'),
        ("tsv", "header = true\n", "{text = 1, label = 3}", 't\tu\tl\na "b\tx\tpos\nc\ty\tneg\n'),
        ("csv", "", "{text = 1, label = 2}", '"a ""b",pos\nc,neg\n'),
        ("csv", "", '{text = "t", label = "l"}', 'l,t\npos,"a ""b"\nneg,c\n'),
    ],
)
def test_tables_by_name_and_by_number(
    format: str, header: str, columns: str, text: str, write: Any, tmp_path: Path
) -> None:
    write("t", text)
    config = f'[train]\nformat = "{format}"\nfiles = "t"\n{header}columns = {columns}'
    first = 2 if "t" in text.split("\n")[0].replace("\t", ",").split(",") else 1
    assert rows(read(LabelledData, config, tmp_path)) == [(first, ('a "b', "pos")), (first + 1, ("c", "neg"))]


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=12)


SEMICOLONS = {
    "named": ('{text = "t", label = "l"}', "", 'l;t\npos;"a; b"\nneg;1,5\n'),
    "numbered": ("{text = 2, label = 1}", "", 'pos;"a; b"\nneg;1,5\n'),
    "numbered, with commas": ("{text = 2, label = 1}", "", 'pos;a, b; c\n"neg";1,5;d\n'),
    "by option": ("{text = 1, label = 2}", ', separator = ";"', "a,b;pos\nc,d;neg\n"),
}


@pytest.mark.parametrize("case", SEMICOLONS)
def test_semicolons_between_cells(case: str, write: Any, tmp_path: Path) -> None:
    columns, option, text = SEMICOLONS[case]
    write("t.csv", text)
    table = f'train = {{format = "csv", files = "t.csv", columns = {columns}{option}}}'
    found = [(example.values["text"], example.values["label"]) for example in read(LabelledData, table, tmp_path)]
    assert [label for _, label in found] == ["pos", "neg"]
    assert ";" not in found[1][0]


def test_a_semicolon_in_a_text_separates_nothing(write: Any, tmp_path: Path) -> None:
    write("t.csv", "text,label\na; b,pos\nc; d; e,neg\n")
    assert rows(read(LabelledData, 'train = {format = "csv", files = "t.csv"}', tmp_path)) == [
        (2, ("a; b", "pos")),
        (3, ("c; d; e", "neg")),
    ]
    write("n.csv", "a; b,pos\nc; d,neg\n")
    config = 'train = {format = "csv", files = "n.csv", columns = {text = 1, label = 2}}'
    assert rows(read(LabelledData, config, tmp_path)) == [(1, ("a; b", "pos")), (2, ("c; d", "neg"))]
    with pytest.raises(ValueError, match="cells of a tsv are separated by tabs"):
        read(LabelledData, 'train = {format = "tsv", files = "n.csv", separator = ";"}', tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=st.lists(st.tuples(cells, cells, st.sampled_from(["a", "b"])), min_size=1, max_size=6))
def test_csv_that_python_writes_is_read_back(table: list[tuple[str, str, str]], tmp_path: Path) -> None:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(table)
    (tmp_path / "t.csv").write_text(sink.getvalue(), encoding="utf-8", newline="")
    config = 'train = {format = "csv", files = "t.csv", columns = {text = 1, second = 2, label = 3}}'
    examples = read(LabelledData, config, tmp_path)
    assert [tuple(e.values.values()) for e in examples] == table
    lines = sink.getvalue().split("\n")
    assert all(lines[e.line - 1].startswith(('"', e.values["text"][:1] or ",")) for e in examples)  # type: ignore[union-attr]


def test_a_cell_over_lines_has_the_line_it_starts_at(write: Any, tmp_path: Path) -> None:
    write("t.csv", 'text,label\n"one\ntwo\nthree",pos\nfour,neg\n')
    examples = read(LabelledData, 'train = {format = "csv", files = "t.csv"}', tmp_path)
    assert rows(examples) == [(2, ("one\ntwo\nthree", "pos")), (5, ("four", "neg"))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=st.lists(st.tuples(cells, st.sampled_from(["x", 3, 2.5, True])), min_size=1, max_size=6))
def test_json_lines(table: list[tuple[str, Any]], tmp_path: Path) -> None:
    with (tmp_path / "t.jsonl").open("w", encoding="utf-8") as out:
        for text, label in table:
            out.write(json.dumps({"body": {"text": text}, "label": label}) + "\n")
    config = 'train = {format = "jsonl", files = "t.jsonl", columns = {text = "body.text"}}'
    expected = [(i, (t, v if isinstance(v, str) else json.dumps(v))) for i, (t, v) in enumerate(table, start=1)]
    assert rows(read(LabelledData, config, tmp_path)) == expected


def test_label_first(write: Any, tmp_path: Path) -> None:
    write("t", "1 a good film\n0  bad\n")
    examples = read(LabelledData, 'train = {format = "label-first", files = "t"}', tmp_path)
    assert [dict(e.values) for e in examples] == [{"text": "a good film", "label": "1"}, {"text": " bad", "label": "0"}]


def test_numbers_as_labels(write: Any, tmp_path: Path) -> None:
    write("t", "a\tb\t4.5\nc\td\tfive\n")
    config = 'labels = "numbers"\ntrain = {files = "t", columns = {text = 1, second = 2, label = 3}}'
    with pytest.raises(DataError, match=r't:2: the label "five" is not a number'):
        read(LabelledData, config, tmp_path)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"words": [["a", "b"], ["c"]], "tags": [[1, 2], [3]]}), tmp_path / "t.parquet")
    examples = read(TaggedData, 'train = {format = "parquet", files = "t.parquet"}', tmp_path)
    assert rows(examples) == [(1, (("a", "b"), ("1", "2"))), (2, (("c",), ("3",)))]


def test_without_pyarrow_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'seqloom\[parquet\]'"):
        read(TextData, 'train = {format = "parquet", files = "t.parquet"}', tmp_path)


def test_conll_columns(write: Any, tmp_path: Path) -> None:
    write("t", "-DOCSTART- -X- O\n\nAda NNP B-PER\n# NN O\n\n\n10\u00a0000 CD O")
    examples = read(TaggedData, 'train = {files = "t"}', tmp_path)
    assert rows(examples) == [(3, (("Ada", "#"), ("B-PER", "O"))), (7, (("10\u00a0000",), ("O",)))]
    examples = read(TaggedData, 'train = {files = "t", tags = 2}', tmp_path)
    assert rows(examples) == [(3, (("Ada", "#"), ("NNP", "NN"))), (7, (("10\u00a0000",), ("CD",)))]


CONLLU = """\
# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
2.1\tx\tx\tX\tX\t_\t_\t_\t1:dep\t_
3\tal mar\tmar\tNOUN\tN\t_\t1\tobl\t_\t_

# a comment at the end
"""


def test_conllu_takes_the_words_of_the_tree(write: Any, tmp_path: Path) -> None:
    write("t", CONLLU)
    examples = read(TaggedData, 'train = {format = "conllu", files = "t"}', tmp_path)
    assert rows(examples) == [(1, (("vamos", "nos", "al mar"), ("VERB", "PRON", "NOUN")))]
    examples = read(TaggedData, 'train = {format = "conllu", files = "t", words = "lemma", tags = "deprel"}', tmp_path)
    assert rows(examples) == [(1, (("ir", "nosotros", "mar"), ("root", "obj", "obl")))]


def test_tagged_lines(write: Any, tmp_path: Path) -> None:
    write("w", "Ada  ran\nso\n")
    write("t", "N V\nADV\n")
    examples = read(TaggedData, 'train = {format = "parallel", words = "w", tags = "t"}', tmp_path)
    assert rows(examples) == [(1, (("Ada", "ran"), ("N", "V"))), (2, (("so",), ("ADV",)))]


@pytest.mark.parametrize(
    ("kind", "config", "fault"),
    [
        (
            TextData,
            'train = {format = "tsv", files = "t", header = false}',
            "columns.text is a name, but header = false",
        ),
        (TextData, 'train = {format = "jsonl", files = "t", columns = {text = 1}}', "jsonl columns have names"),
        (TextData, 'train = {files = "t"}\nvalid = {files = "v"}\nvalid_fraction = 0.1', "both make a validation set"),
        (TextData, "train = []", "at least 1 item"),
        (TextData, 'train = {format = "conll", files = "t"}', "conll"),
        (TextData, 'train = {files = "t", weight = 0.0}', "greater than 0"),
        (ParallelData, 'train = {source = "t"}', "target"),
        (TextData, 'train = {files = "t"}\nchecks = {duplicates = "off"}', "duplicates"),
    ],
)
def test_configurations_that_cannot_mean_anything(kind: type[Any], config: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        kind.model_validate(tomllib.loads(config))
