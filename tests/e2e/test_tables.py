"""Verbs on tables: they read the columns that the run was trained on, or those that are named."""

import json
from pathlib import Path

import pytest

from forked import seqloom
from small_corpora import TAGS, sentences
from small_runs import Runs

TEXTS = [*sentences(5, seed=8), 'the cat, "a dog"; a bird .']
FORMS = ("csv", "semicolons.csv", "tsv", "jsonl", "parquet")
VERBS = {
    "translate": "translation",
    "generate": "language-model",
    "score": "language-model",
    "fill": "masked-language-model",
    "embed": "language-model",
    "classify": "classification",
    "tag": "tagging",
}


def write_table(path: Path, columns: dict[str, list[str]]) -> Path:
    rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    if path.suffix == ".parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table(columns), path)
        return path
    separator = {".tsv": "\t", ".csv": ";" if ".semicolons" in path.suffixes else ","}.get(path.suffix)
    if separator is None:
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows[1:]]
    elif separator == "\t":
        lines = ["\t".join(row) for row in rows]
    else:
        lines = [separator.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_read_by_the_columns_of_the_training(form: str, runs: Runs, tmp_path: Path) -> None:
    run = runs("classification")
    plain = seqloom("classify", run, "--json", stdin="".join(f"{text}\n" for text in TEXTS).encode())
    number = [f"{n}" for n in range(len(TEXTS))]
    labelled = write_table(tmp_path / f"a.{form}", {"number": number, "label": ["short"] * len(TEXTS), "text": TEXTS})
    bare = write_table(tmp_path / f"b.{form}", {"text": TEXTS})
    for path in (labelled, bare):
        done = seqloom("classify", run, path, "--json")
        assert done.stdout == plain.stdout, done.stderr
        assert f"{path}: reads column text ({form.rpartition('.')[2]})" in done.stderr.decode()


@pytest.mark.parametrize("verb", VERBS)
def test_any_verb_reads_the_column_that_is_named(verb: str, runs: Runs, tmp_path: Path) -> None:
    run = runs(VERBS[verb])
    plain = seqloom(verb, run, "--json", stdin="".join(f"{text}\n" for text in TEXTS).encode())
    path = write_table(tmp_path / "a.csv", {"id": ["1"] * len(TEXTS), "sentence": TEXTS})
    done = seqloom(verb, run, path, "--column", "sentence", "--json")
    assert done.stdout == plain.stdout, done.stderr
    out = tmp_path / "out"
    assert seqloom(verb, run, path, "--column", "sentence", "--json", "-o", out).returncode == plain.returncode
    assert out.read_bytes() == plain.stdout
    piped = seqloom(verb, run, "--format", "csv", "--column", "sentence", "--json", stdin=path.read_bytes())
    assert piped.stdout == plain.stdout


def test_a_table_of_unknown_columns_is_refused(runs: Runs, tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.csv", {"sentence": TEXTS})
    told = seqloom("score", runs("language-model"), path)
    assert (told.returncode, told.stdout) == (2, b"")
    assert "so its column is not known; say which with --column" in told.stderr.decode()
    told = seqloom("classify", runs("classification"), path)
    assert (told.returncode, told.stdout) == (1, b"")
    assert 'no column is named "text" (text); the header has: sentence; say which with --column' in told.stderr.decode()
    lines = seqloom("classify", runs("classification"), path, "--format", "text")
    assert lines.stdout.count(b"\n") == len(TEXTS) + 1
    told = seqloom("classify", runs("classification"), "--column", "text", stdin=b"x\n")
    assert (told.returncode, b"lines of text have no columns" in told.stderr) == (2, True)


def test_a_bad_row_fails_alone(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'label,text\na,the cat\na\n\na,"two\nl\xffnes"\na,the \x00 dog\na,the dog .\n')
    done = seqloom("classify", runs("classification"), path, "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    errors = [None, "missing_column", None, "bad_utf8", "nul", None]
    assert [(one["line"], one.get("error")) for one in found] == list(enumerate(errors, start=1))
    assert f"{path}:3: column 2 (text) is missing" in found[1]["message"]
    assert (found[2]["label"], done.returncode) == ("", 1)


def test_sentences_of_conll_are_tagged_by_their_words(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    sentence = [text.split() for text in TEXTS[:2]]
    path.write_text("\n".join("".join(f"{word} X\n" for word in words) for words in sentence), encoding="utf-8")
    done = seqloom("tag", runs("tagging"), path)
    assert done.stdout.decode().splitlines() == [" ".join(TAGS[word] for word in words) for words in sentence], (
        done.stderr
    )


def test_a_pair_is_scored_from_a_table(runs: Runs, tmp_path: Path) -> None:
    sources, targets = TEXTS[:3], [text.upper() for text in TEXTS[:3]]
    path = write_table(tmp_path / "a.jsonl", {"de": sources, "en": targets})
    done = seqloom("score", runs("translation"), path, "--column", "de", "--column", "en")
    bare = tmp_path / "b.tsv"
    bare.write_text("".join(f"{s}\t{t}\n" for s, t in zip(sources, targets, strict=True)), encoding="utf-8")
    assert done.stdout == seqloom("score", runs("translation"), bare).stdout != b""
    one = seqloom("score", runs("translation"), path, "--column", "de")
    assert (one.returncode, b"1 given, but 2 needed: source, target" in one.stderr) == (2, True)
