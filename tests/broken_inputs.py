"""A catalogue of broken inputs: files a person might really have, and the findings the doctor must come to.

`python tests/broken_inputs.py` writes the table in docs/broken-inputs.md; a test holds the two together.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import random
import socket
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqloom.config.checks import Checks
from seqloom.config.data import Data, LabelledData, ParallelData, TaggedData, TextData
from seqloom.data.doctor import Report, examine
from seqloom.data.doctor.report import get_severity
from seqloom.data.examples import KINDS as FINDINGS
from seqloom.data.examples import UNREADABLE

DOCUMENT = Path(__file__).parents[1] / "docs" / "broken-inputs.md"
KINDS: dict[str, type[Data]] = {
    "text": TextData,
    "parallel": ParallelData,
    "labelled": LabelledData,
    "tagged": TaggedData,
}  # type: ignore[assignment]

Maker = bytes | Callable[[Path], None]


@dataclass(frozen=True)
class Broken:
    title: str
    kind: str
    files: Mapping[str, Maker]
    config: str
    expected: tuple[str, ...]
    """The kinds of finding that must come up."""
    fatal: bool
    """Whether training must refuse."""

    def write(self, folder: Path) -> Data:
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                content(path)
        return KINDS[self.kind].model_validate(tomllib.loads(self.config))

    def examine_in(self, folder: Path) -> Report:
        """The report with file names relative to the folder, as a user sees them."""
        data, before = self.write(folder), Path.cwd()
        os.chdir(folder)
        try:
            return examine(data, Path())
        finally:
            os.chdir(before)


def sentences(count: int, seed: int) -> list[str]:
    """Sentences of many lengths; the same count and a seed of another language have similar lengths."""
    lengths, letters = random.Random(0), random.Random(seed)
    lines = []
    for _ in range(count):
        size = lengths.randint(3, 25)
        lines.append(" ".join("".join(letters.choices("abcdefghij", k=letters.randint(3, 8))) for _ in range(size)))
    return lines


def lines(*texts: str) -> bytes:
    return "".join(text + "\n" for text in texts).encode()


def socket_at(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may not be long
    try:
        server.bind(path.name)
    finally:
        os.chdir(before)
        server.close()


def parquet_of(columns: dict[str, list[object]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue()


def zip_of(name: str, content: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), content)
    return sink.getvalue()


GOOD = lines("one good line", "another good line", "and a third")
SOURCE, TARGET = sentences(400, 1), sentences(400, 2)
ALIGNMENT = ["0-0 1-2 2-1"] * 400
TEXT = 'train = {files = "train.txt"}'
PAIRS = 'train = {source = "train.de", target = "train.en"}'
LABELS = 'train = {files = "train.tsv", columns = {text = 1, label = 2}}'
CSV = 'train = {format = "csv", files = "train.csv"}'
JSON = 'train = {format = "jsonl", files = "train.jsonl"}'
CONLL = 'train = {files = "train.conll"}'
CONLLU = 'train = {format = "conllu", files = "train.conllu"}'


def text(
    title: str, content: Maker, *expected: str, fatal: bool, config: str = TEXT, name: str = "train.txt"
) -> Broken:
    return Broken(title, "text", {name: content}, config, expected, fatal)


def pairs(title: str, source: list[str], target: list[str], *expected: str, fatal: bool) -> Broken:
    return Broken(title, "parallel", {"train.de": lines(*source), "train.en": lines(*target)}, PAIRS, expected, fatal)


def aligned(title: str, alignment: list[str], *expected: str) -> Broken:
    files = {"train.de": lines(*SOURCE), "train.en": lines(*TARGET), "train.align": lines(*alignment)}
    config = PAIRS.replace("}", ', alignment = "train.align"}')
    return Broken(title, "parallel", files, config, expected, fatal=True)


def table(title: str, name: str, content: bytes, config: str, *expected: str, fatal: bool) -> Broken:
    return Broken(title, "labelled", {name: content}, config, expected, fatal)


def tagged(title: str, name: str, content: bytes, config: str, *expected: str, fatal: bool) -> Broken:
    return Broken(title, "tagged", {name: content}, config, expected, fatal)


FILES = [
    text("the file is not there", GOOD, "missing_file", fatal=True, name="other.txt"),
    text("a letter of the name is wrong", GOOD, "missing_file", fatal=True, name="trian.txt"),
    text("the folder is not there", GOOD, "missing_file", fatal=True, config='train = {files = "data/train.txt"}'),
    text("no file matches the pattern", GOOD, "missing_file", fatal=True, config='train = {files = "part-*.txt"}'),
    text("the folder holds no files", lambda p: p.mkdir(), "missing_file", fatal=True),
    text("a link that points nowhere", lambda p: p.symlink_to("gone"), "missing_file", fatal=True),
    text("the file cannot be opened (a socket)", socket_at, "unreadable_file", fatal=True),
    text("the file is empty", b"", "empty_file", fatal=True),
    text("a .gz of nothing", gzip.compress(b"", mtime=0), "empty_file", fatal=True),
    text("only blank lines", b"\n \n\t\n\n", "no_records", fatal=True),
    text(
        "a .gz that breaks off",
        gzip.compress(random.Random(0).randbytes(400).hex().encode(), mtime=0)[:-40],
        "truncated_file",
        fatal=True,
    ),
    text(
        "a .gz with a damaged checksum",
        gzip.compress(GOOD, mtime=0)[:-8] + bytes(8),
        "truncated_file",
        fatal=True,
    ),
    text("an .xz that breaks off", lzma.compress(GOOD)[:-20], "truncated_file", fatal=True),
    text("a .bz2 with a damaged block", bz2.compress(GOOD)[:20] + bytes(20), "truncated_file", fatal=True),
    text("a Word document (or any zip)", zip_of("word/document.xml", GOOD), "not_text", fatal=True),
    text("a PDF", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "not_text", fatal=True),
    text("a Parquet table read as text", parquet_of({"text": ["a"]}), "not_text", fatal=True),
    text("UTF-16 with a byte order mark", "ein Satz\nnoch einer\n".encode("utf-16"), "not_text", fatal=True),
    text("UTF-16 without one", "ein Satz\nnoch einer\n".encode("utf-16-le"), "nul", fatal=True),
    text("random bytes", random.Random(0).randbytes(2000), "bad_utf8", fatal=True),
]
CHARACTERS = [
    text("Latin-1 instead of UTF-8", "ein Café\nzwei Cafés\n".encode("latin-1"), "bad_utf8", fatal=True),
    text("one wrong byte among good UTF-8", "Café\n".encode() + b"Caf\xe9\n", "bad_utf8", fatal=True),
    text("a character cut in half at the end of the file", GOOD + "Café".encode()[:-1], "bad_utf8", fatal=True),
    text("an overlong encoding of a slash", GOOD + b"a\xc0\xafb\n", "bad_utf8", fatal=True),
    text("a surrogate encoded as if it were a character", GOOD + b"a\xed\xa0\xbdb\n", "bad_utf8", fatal=True),
    text("a byte order mark", b"\xef\xbb\xbf" + GOOD, "bom", fatal=False),
    text("a byte order mark between joined files", GOOD + b"\xef\xbb\xbf" + GOOD, "invisible_character", fatal=False),
    text("NUL inside a line", lines("good", "not\x00good"), "nul", fatal=True),
    text("an escape sequence of a terminal", lines("good", "\x1b[31mred\x1b[0m"), "control_character", fatal=False),
    text("U+2028 inside a line", lines("good", "first\u2028second"), "line_separator", fatal=False),
    text("U+0085 inside a line", lines("good", "first\x85second"), "line_separator", fatal=False),
    text("a form feed between pages", lines("good", "\x0cpage two"), "line_separator", fatal=False),
    text("lines that end with CR LF", b"one\r\ntwo\r\n", "crlf", fatal=False),
    text("a CR inside a line", b"one\rtwo\nthree\n", "lone_cr", fatal=False),
    text("lines that end with CR alone", b"one\rtwo\rthree\r", "lone_cr", fatal=False),
    text("a zero-width space", lines("good", "in\u200bvisible"), "invisible_character", fatal=False),
    text(
        "a character that turns the direction of text",
        lines("good", "abc\u202edef"),
        "invisible_character",
        fatal=False,
    ),
    text("U+FFFD where a letter was", lines("good", "Caf\ufffd"), "replacement_character", fatal=False),
    text("a private-use character", lines("good", "a \uf0b7 bullet"), "private_character", fatal=False),
    text("UTF-8 read as Windows-1252 and saved again", lines("good", "CafÃ© isnâ€™t"), "mojibake", fatal=False),
    text("HTML entities", lines("good", "fish &amp; chips"), "entity", fatal=False),
    text("accents as characters of their own", lines("good", "Cafe\u0301"), "not_nfc", fatal=False),
]
LINES = [
    text("a blank line", lines("one", "", "two"), "blank", fatal=False),
    text("a line of ideographic spaces", lines("one", "\u3000\u3000", "two"), "blank", fatal=False),
    text("a line above the limit on bytes", lines("x" * 3_000_000, "two"), "endless_line", fatal=True),
    text("no line ends at all", b"word " * 300_000, "endless_line", fatal=True),
    text("a very long record", lines("one", "word " * 3000), "long_record", fatal=False),
    text("the same line twice", lines("the same", "another", "the same"), "duplicate", fatal=False),
    text("nothing left to hold out", GOOD, "no_records", fatal=True, config=TEXT + "\nvalid_fraction = 0.1"),
    Broken(
        "a test text that is in the training text",
        "text",
        {"train.txt": GOOD, "test.txt": lines("something new", "another good line")},
        TEXT + '\ntest = {files = "test.txt"}',
        ("overlap",),
        False,
    ),
    Broken(
        "tokenised training text, raw test text",
        "text",
        {"train.txt": lines(*(f"{s} ." for s in SOURCE)), "test.txt": lines(*(f"{s}." for s in TARGET))},
        TEXT + '\ntest = {files = "test.txt"}',
        ("mixed_tokenisation",),
        False,
    ),
]
PARALLEL = [
    pairs("a line is missing on one side", SOURCE, TARGET[:150] + TARGET[151:], "unequal_lines", fatal=True),
    pairs("an empty line shifts one side", SOURCE, [*TARGET[:99], "", *TARGET[99:]], "unequal_lines", fatal=True),
    pairs("the end of one side is missing", SOURCE, TARGET[:300], "unequal_lines", fatal=True),
    pairs("one side is shifted between two places", SOURCE, [*TARGET[:99], "extra", *TARGET[99:299], *TARGET[300:]],
          "misaligned", fatal=False),
    pairs("a blank line on one side", SOURCE, [*TARGET[:7], "", *TARGET[8:]], "one_sided_blank", fatal=True),
    pairs("a blank line on both sides", [*SOURCE, ""], [*TARGET, ""], "blank", fatal=False),
    pairs("a word against a paragraph", [*SOURCE, "ein Wort"], [*TARGET, "far too many words " * 20], "length_ratio",
          fatal=False),
    pairs("the target repeats the source", SOURCE, [*TARGET[:5], SOURCE[5], *TARGET[6:]], "untranslated", fatal=False),
    pairs("one file is named for both sides", SOURCE, SOURCE, "same_sides", fatal=True),
    Broken("validation is in the other direction", "parallel",
           {"train.de": lines(*SOURCE), "train.en": lines(*TARGET), "valid.de": lines(*TARGET[:60]),
            "valid.en": lines(*SOURCE[:60])},
           'train = {source = "train.de", target = "train.en"}\nvalid = {source = "valid.de", target = "valid.en"}',
           ("swapped_sides",), True),
    pairs("the same pair twice", [*SOURCE, SOURCE[3]], [*TARGET, TARGET[3]], "duplicate", fatal=False),
    pairs("one side is empty", SOURCE, [], "empty_file", fatal=True),
    aligned("an alignment names a missing word", [*ALIGNMENT[:6], "0-0 99-1", *ALIGNMENT[7:]], "bad_alignment"),
    aligned("an alignment is written otherwise", [*ALIGNMENT[:6], "0-0 1:2", *ALIGNMENT[7:]], "bad_alignment"),
    aligned("an alignment is missing", ALIGNMENT[:300], "unequal_lines"),
    Broken("two files on one side, one on the other", "parallel", {"a.de": GOOD, "b.de": GOOD, "a.en": GOOD},
           'train = {source = ["a.de", "b.de"], target = "a.en"}', ("unequal_files",), True),
    Broken("a tab inside a text of a TSV", "parallel", {"p.tsv": lines("a b\tc d", "e f\tg\th", "i\tj")},
           'train = {format = "tsv", files = "p.tsv", columns = {source = 1, target = 2}}', ("ragged_row",), True),
    Broken("a TSV row with one cell", "parallel", {"p.tsv": lines("a b\tc d", "e f g h", "i\tj")},
           'train = {format = "tsv", files = "p.tsv", columns = {source = 1, target = 2}}', ("missing_column",), True),
]  # fmt: skip
TABLES = [
    table("the header names no such column", "train.csv", lines("sentence,label", "good,1", "bad,0"), CSV,
          "unknown_column", fatal=True),
    table("a header and nothing else", "train.csv", lines("text,label"), CSV, "no_records", fatal=True),
    table("a row without a label", "train.csv", lines("text,label", "good,1", "bad", "so so,0"), CSV,
          "missing_column", fatal=True),
    table("a comma that should be quoted", "train.csv", lines("text,label", "good, very good,1", "bad,0", "x,1"), CSV,
          "ragged_row", fatal=True),
    table("a quote that is never closed", "train.csv", lines("text,label", "good,1", '"bad,0', "fine,1", "poor,0"), CSV,
          "bad_row", fatal=True),
    table("text after a closing quote", "train.csv", lines("text,label", '"good" one,1', "bad,0"), CSV,
          "bad_row", fatal=True),
    table("a line end inside a cell", "train.csv", lines("text,label", '"two\nlines",1', "bad,0"), CSV,
          "line_separator", fatal=False),
    table("a blank label", "train.tsv", lines("good\t1", "bad\t ", "so so\t0"), LABELS, "blank_label", fatal=True),
    table("a label without text", "train.tsv", lines("good\t1", "\t0", "bad\t0"), LABELS, "one_sided_blank",
          fatal=True),
    table("a blank line in a table", "train.tsv", lines("good\t1", "", "bad\t0"), LABELS, "blank", fatal=False),
    table("a label that is no number", "train.tsv", lines("good\t4.5", "bad\tthree"), 'labels = "numbers"\n' + LABELS,
          "bad_value", fatal=True),
    table("a label that is NaN", "train.tsv", lines("good\t4.5", "bad\tnan"), 'labels = "numbers"\n' + LABELS,
          "bad_value", fatal=True),
    table("several labels in one", "train.tsv", lines("good\ta|b", "fine\tb", "bad\ta", "poor\tb|a"), LABELS,
          "joined_labels", fatal=False),
    table("every label is the same", "train.tsv", lines("good\t1", "fine\t1"), LABELS, "single_label", fatal=True),
    table("text and label columns exchanged", "train.tsv", lines(*(f"{i % 2}\t{s}" for i, s in enumerate(SOURCE[:20]))),
          LABELS, "many_labels", fatal=False),
    table("one text with two labels", "train.tsv", lines("good\t1", "bad\t0", "good\t0"), LABELS, "conflicting_label",
          fatal=False),
    Broken("a test label that training never sees", "labelled",
           {"train.tsv": lines("good\t1", "bad\t0"), "test.tsv": lines("so so\t2")},
           LABELS + '\ntest = {files = "test.tsv", columns = {text = 1, label = 2}}', ("unknown_label",), True),
    table("no space after the label", "train.txt", lines("1 good", "0", "0 bad"),
          'train = {format = "label-first", files = "train.txt"}', "missing_column", fatal=True),
    table("JSON that breaks off", "train.jsonl", b'{"text": "good", "label": 1}\n{"text": "ba\n', JSON, "bad_row",
          fatal=True),
    table("a JSON list instead of lines", "train.jsonl", b'[{"text": "good", "label": 1}]\n', JSON, "bad_row",
          fatal=True),
    table("JSON nested without end", "train.jsonl", b"[" * 100_000 + b"\n", JSON, "bad_row", fatal=True),
    table("a JSON key that is missing", "train.jsonl", lines(json.dumps({"text": "good", "labels": 1})), JSON,
          "missing_column", fatal=True),
    table("a JSON null for a text", "train.jsonl", lines(json.dumps({"text": None, "label": 1})), JSON, "bad_value",
          fatal=True),
    table("half a surrogate pair in JSON", "train.jsonl", rb'{"text": "\ud83d", "label": 1}' + b"\n", JSON,
          "bad_surrogate", fatal=True),
    table("NUL as a JSON escape", "train.jsonl", rb'{"text": "a\u0000b", "label": 1}' + b"\n", JSON, "nul", fatal=True),
    table("a Parquet table without the column", "train.parquet", parquet_of({"sentence": ["a"], "label": [1]}),
          'train = {format = "parquet", files = "train.parquet"}', "unknown_column", fatal=True),
    table("a Parquet table that breaks off", "train.parquet", parquet_of({"text": ["a"], "label": [1]})[:-9],
          'train = {format = "parquet", files = "train.parquet"}', "unreadable_file", fatal=True),
    table("a null in a Parquet table", "train.parquet", parquet_of({"text": ["a", None], "label": [1, 0]}),
          'train = {format = "parquet", files = "train.parquet"}', "bad_value", fatal=True),
]  # fmt: skip
WORD = "\t".join(["1", "Ada", "Ada", "PROPN", "NNP", "_", "0", "root", "_", "_"])
SECOND = "\t".join(["2", "ran", "run", "VERB", "VBD", "_", "1", "dep", "_", "_"])
TAGGED = [
    Broken("fewer tags than words", "tagged", {"w.txt": lines("Ada ran", "so do I"), "t.txt": lines("N V", "A V")},
           'train = {format = "parallel", words = "w.txt", tags = "t.txt"}', ("tag_count",), True),
    tagged("a word without a tag", "train.conll", lines("Ada N", "ran", "", "so A"), CONLL, "tag_count", fatal=True),
    tagged("a row with a column too many", "train.conll", lines("Ada N", "ran away V", "", "so A"), CONLL, "ragged_row",
           fatal=True),
    tagged("spaces where CoNLL-U has tabs", "train.conllu", lines(WORD.replace("\t", "    ")), CONLLU, "missing_column",
           fatal=True),
    tagged("no blank line between two sentences", "train.conllu", lines(WORD, SECOND, WORD), CONLLU, "bad_row",
           fatal=True),
    tagged("an ID that is no number", "train.conllu", lines(WORD.replace("1", "one", 1)), CONLLU, "bad_row",
           fatal=True),
    tagged("a blank word", "train.conllu", lines(WORD.replace("\tAda\t", "\t\t", 1)), CONLLU, "tag_count", fatal=True),
    Broken("a test tag that training never sees", "tagged",
           {"train.conll": lines("Ada N", "ran V"), "test.conll": lines("so ADV")},
           CONLL + '\ntest = {files = "test.conll"}', ("unknown_tag",), False),
    tagged("JSON with fewer tags than words", "train.jsonl", lines(json.dumps({"words": ["a", "b"], "tags": ["N"]})),
           'train = {format = "jsonl", files = "train.jsonl"}', "tag_count", fatal=True),
    tagged("words as a text, not as a list", "train.jsonl", lines(json.dumps({"words": "a b", "tags": ["N", "V"]})),
           'train = {format = "jsonl", files = "train.jsonl"}', "bad_value", fatal=True),
]  # fmt: skip
GROUPS = {
    "Files": FILES,
    "Characters": CHARACTERS,
    "Lines and splits": LINES,
    "Parallel text": PARALLEL,
    "Tables": TABLES,
    "Tagged text": TAGGED,
}
CATALOGUE = [broken for group in GROUPS.values() for broken in group]


def describe(broken: Broken, report: Report) -> str:
    """One row of the table: every finding with the first place of each."""
    said = []
    for finding in report.findings:
        place = finding.places[0]
        message = f"{place}: {place.message}".replace("|", "\\|")
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
        more = f" (and {finding.count - 1:,} more)" if finding.count > 1 else ""
        said.append(f"**{finding.severity}** `{finding.kind}` {shown}{more}")
    return f"| {broken.title} | {'<br>'.join(said)} |"


def document() -> str:
    """The whole page."""
    page = [
        "# What the doctor says about broken inputs",
        "",
        f"Each of these {len(CATALOGUE)} inputs is made by `tests/broken_inputs.py`, and the answers below are what"
        " `seqloom check` says about it; a test keeps this page up to date. Training refuses an **error** and counts a"
        " **warn**. The last table lists every kind of finding; [data](data.md) says how to change its severity.",
    ]
    for name, group in GROUPS.items():
        page += ["", f"## {name}", "", "| input | what the doctor says |", "|---|---|"]
        for broken in group:
            with tempfile.TemporaryDirectory() as folder:
                page.append(describe(broken, broken.examine_in(Path(folder))))
    page += ["", "## Every kind of finding", "", "| finding | meaning | severity |", "|---|---|---|"]
    for kind, meaning in FINDINGS.items():
        severity = "always error" if kind in UNREADABLE else get_severity(kind, Checks())
        page.append(f"| `{kind}` | {meaning} | {severity} |")
    return "\n".join(page) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
    sys.stdout.write(f"wrote {DOCUMENT.name}: {len(CATALOGUE)} inputs\n")
