"""Lines: only LF ends one, in any compression, at any block boundary, in bounded memory."""

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.data import files as files_module
from seqloom.data.files import Block, find_files, read_blocks

LINE_ENDS_OF_OTHERS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00"
texts = st.text(st.sampled_from("ab é字😀\n\r" + LINE_ENDS_OF_OTHERS), max_size=60)


def read(path: Path, max_line: int = 1 << 20) -> tuple[list[str], dict[str, int]]:
    """The lines of a file, and how often each kind of fault was met."""
    lines: list[str] = []
    faults: dict[str, int] = {}
    for block in read_blocks(str(path), max_line):
        assert block.first == len(lines) + 1
        lines += block.lines
        for fault in block.faults:
            faults[fault.kind] = faults.get(fault.kind, 0) + fault.count
    return lines, faults


def faults_of(path: Path, max_line: int = 1 << 20) -> list[tuple[str, int, str]]:
    blocks: list[Block] = list(read_blocks(str(path), max_line))
    return [(fault.kind, fault.line, fault.message) for block in blocks for fault in block.faults]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts)
def test_lines_end_at_lf_alone_wherever_the_blocks_end(
    text: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "BLOCK", block)
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    expected = text.split("\n")
    if expected[-1] == "":
        expected.pop()
    last_has_end = text.endswith("\n")
    ended = expected if last_has_end else expected[:-1]
    stripped = [line.removesuffix("\r") for line in ended] + expected[len(ended) :]

    lines, faults = read(path)

    assert lines == stripped
    assert faults.pop("crlf", 0) == sum(line.endswith("\r") for line in ended)
    assert faults == ({} if text else {"empty_file": 1})


@pytest.mark.parametrize("character", LINE_ENDS_OF_OTHERS)
def test_what_others_take_for_line_ends_is_text(character: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(f"one{character}still one\ntwo\n".encode())
    assert read(tmp_path / "text") == ([f"one{character}still one", "two"], {})


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("name", ["text", "text.gz", "text.txt"])
def test_compression_is_told_by_content(compress: object, name: str, tmp_path: Path) -> None:
    content = "".join(f"line {i} é\n" for i in range(5000))
    (tmp_path / name).write_bytes(compress(content.encode()))  # type: ignore[operator]
    assert read(tmp_path / name) == (content.splitlines(), {})


def test_a_text_that_begins_like_bzip2_is_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"BZh9 is how bzip2 begins\n")
    assert read(tmp_path / "text") == (["BZh9 is how bzip2 begins"], {})


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(gzip.compress(b"one\ntwo\n", mtime=0))))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert [line for block in read_blocks("-", 1 << 20) for line in block.lines] == ["one", "two"]


def test_a_wrong_byte_is_named_with_its_line_and_offset(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("é\r\nabc ".encode() + b"\xe9t\xe9\nlast\n")
    kind, line, message = faults_of(tmp_path / "text")[0]
    assert (kind, line) == ("bad_utf8", 2)
    assert message.startswith("byte 0xe9 at byte 5 of the line (offset 8 in the file) is not UTF-8: abc \\xe9t\\xe9")
    lines, faults = read(tmp_path / "text")
    assert lines == ["é", "abc \\xe9t\\xe9", "last"], "the line keeps its place"
    assert faults == {"bad_utf8": 1, "crlf": 1}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.sampled_from([b"good", b"\xff", "zwölf".encode(), b"caf\xe9 x"]), max_size=8))
def test_every_bad_line_is_found_and_no_other(parts: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"".join(part + b"\n" for part in parts))
    bad = [i for i, part in enumerate(parts, start=1) if part in (b"\xff", b"caf\xe9 x")]
    assert [line for kind, line, _ in faults_of(tmp_path / "text") if kind == "bad_utf8"] == bad


@pytest.mark.parametrize("block", [5, 1 << 20])
def test_a_line_too_long_holds_its_place(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "BLOCK", block)
    monkeypatch.setattr(files_module, "KEPT", 3)
    (tmp_path / "text").write_bytes(b"one\n" + b"x" * 50 + b"\nthree\n" + b"y" * 20)
    lines, _ = read(tmp_path / "text", max_line=10)
    assert lines == ["one", "xxx", "three", "yyy"]
    found = faults_of(tmp_path / "text", max_line=10)
    assert [(kind, line) for kind, line, _ in found] == [("endless_line", 2), ("endless_line", 4)]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert read(tmp_path / "text") == (["one", "\ufefftwo"], {"bom": 1})


def test_what_could_be_read_of_a_broken_archive_is_read(tmp_path: Path) -> None:
    content = "".join(f"line {i} {i * i}\n" for i in range(20000)).encode()
    (tmp_path / "text.gz").write_bytes(gzip.compress(content, mtime=0)[:-5000])
    lines, faults = read(tmp_path / "text.gz")
    assert faults == {"truncated_file": 1}
    assert len(lines) > 1000
    assert lines == content.decode().splitlines()[: len(lines)]


def test_a_100_mb_line_needs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "endless"
    with path.open("wb") as out:
        for _ in range(100):
            out.write(b"x" * 1_000_000)
    program = """
        import resource, sys
        from pathlib import Path
        from seqloom.config.data import TextData
        from seqloom.data.doctor import examine
        data = TextData.model_validate({"train": {"files": sys.argv[1]}})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report = examine(data, Path())
        assert [f.kind for f in report.errors] == ["endless_line"], report.findings
        assert "100,000,000 bytes" in report.errors[0].places[0].message
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 50, "megabytes beyond what the imports took"


def test_names_patterns_and_folders(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "b/deep/3.txt", "b/.hidden", "part-10", "part-9", "odd[1].txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    found, faults = find_files(["part-*", "b", "odd[1].txt", "-"], tmp_path)
    assert [Path(f).relative_to(tmp_path).as_posix() if f != "-" else f for f in found] == [
        *("part-10", "part-9", "b/1.txt", "b/2.txt", "b/deep/3.txt", "odd[1].txt", "-")
    ]
    assert faults == []
    _, faults = find_files(["part-*.gz", "b/3.txt", "gone/x"], tmp_path)
    assert [fault.kind for fault in faults] == ["missing_file"] * 3
