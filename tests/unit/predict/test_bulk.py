"""Line N in is line N out, and a job that was killed ends with the bytes of one that was not."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import parquet

from seqloom.errors import DataError, SeqloomError
from seqloom.predict import bulk
from seqloom.predict.bulk import (
    Failure,
    Line,
    apply_verb,
    close_windows,
    count_flags,
    describe_flags,
    read_lines,
    read_pairs,
    run_here,
    split_columns,
)
from seqloom.predict.formats import Format, JsonFormat, NpyFormat, ParquetFormat, TextFormat
from seqloom.predict.job import run_to_file, run_to_stream
from seqloom.predict.results import Generation, Tagging, Translation, Vector


def shout(numbers: list[int], texts: list[str]) -> list[Translation]:
    """A model that cannot bear the letter q."""
    if any("q" in text for text in texts):
        raise DataError("there is a q")
    return [Translation(text.upper(), float(number)) for number, text in zip(numbers, texts, strict=True)]


def measure(_: list[int], texts: list[str]) -> list[Vector]:
    return [Vector(np.array([len(text), text.count("a"), 0.5], np.float32)) for text in texts]


def ignore(*_: Any) -> None:
    """Report nothing."""


@given(st.lists(st.tuples(st.text("abq"), st.booleans()), max_size=40))
def test_every_line_has_its_result_and_a_failure_is_its_own(given_lines: list[tuple[str, bool]]) -> None:
    lines = [Line((text,), "bad_utf8", "a byte") if bad else Line((text,)) for text, bad in given_lines]
    results = apply_verb(lines, shout, first=5)
    assert len(results) == len(lines)
    for number, ((text, bad), result) in enumerate(zip(given_lines, results, strict=True), start=5):
        if bad:
            assert result == Failure("bad_utf8", "a byte")
        elif "q" in text:
            assert result == Failure("refused", "there is a q")
        else:
            assert result == Translation(text.upper(), float(number))


def test_flags_are_counted_and_told() -> None:
    results = [Tagging(), Tagging(pieces=3), Failure("nul", "U+0000"), Translation("x", finished=False)]
    results += [Generation("y", pieces=2), Generation("z", finished=False)]
    assert count_flags(results) == {"split": 1, "failed": 1, "unfinished": 1, "shortened": 1}
    assert list(describe_flags(10, results)) == [
        "line 11: too long for the model: processed in 3 pieces",
        "line 12: failed: nul: U+0000",
        "line 14: too long for the model: it read the last of 2 pieces",
    ]


def read(path: Path) -> list[Line]:
    return [line for block in read_lines(str(path)) for line in block]


def test_lines_are_those_of_wc(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntw\xe9\nfo\0ur\nfive\x0b\xe2\x80\xa8six\nlast")
    assert [(line.texts[0], line.kind) for line in read(path)] == [
        ("one", ""),
        ("", ""),
        ("tw\\xe9", "bad_utf8"),
        ("fo\0ur", "nul"),
        ("five\x0b\u2028six", ""),
        ("last", ""),
    ]


def test_an_endless_line_fails_without_being_held(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\n" + b"x" * 3_000_000 + b"\nb\n")
    assert [line.kind for line in read(tmp_path / "in")] == ["", "endless_line", ""]


def test_a_damaged_file_is_an_error_after_its_good_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress(("good line\n" * 1000).encode(), mtime=0)[:-12])
    blocks = read_lines(str(path))
    assert next(blocks)[0] == Line(("good line",))
    with pytest.raises(DataError, match="ends early"):
        list(blocks)
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "missing")


def test_two_files_and_two_columns(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n")
    (tmp_path / "b").write_bytes(b"eins\nzw\xff\n")
    pairs = [line for block in read_pairs((str(tmp_path / "a"), str(tmp_path / "b"))) for line in block]
    assert pairs[0] == Line(("one", "eins"))
    assert pairs[1].kind == "bad_utf8"
    (tmp_path / "b").write_bytes(b"eins\n")
    with pytest.raises(DataError, match="b: ends before line 2"):
        list(read_pairs((str(tmp_path / "a"), str(tmp_path / "b"))))
    (columns,) = split_columns([[Line(("a\tb",)), Line(("a",)), Line((" ",))]], 2)
    assert [line.kind for line in columns] == ["", "columns", ""]
    assert columns[2].texts == ("", "")


def test_windows_are_bounded_and_do_not_wait_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "WINDOW_LINES", 3)
    blocks = [[Line((str(number),)) for number in range(first, first + 2)] for first in (0, 2, 4)]
    waiting = [[line.texts[0] for line in window] for window in close_windows(blocks, wait=True)]
    assert waiting == [["0", "1", "2"], ["3", "4", "5"]]
    assert [len(window) for window in close_windows(blocks, wait=False)] == [2, 2, 2]
    monkeypatch.setattr(bulk, "WINDOW_CHARACTERS", 2)
    assert [len(window) for window in close_windows(blocks, wait=True)] == [2, 2, 2]


LINES = [Line(("q",)) if n % 10 == 7 else Line((f"line {n} a" * (n % 4),)) for n in range(1, 48)]
FORMATS = {"txt": lambda: TextFormat(lambda found: found.text), "jsonl": JsonFormat, "npy": lambda: NpyFormat((3,))}
FORMATS["parquet"] = lambda: ParquetFormat("text")


class Killed(BaseException):
    """Not an Exception: nothing may catch it."""


def run(path: Path, *, resume: bool, dies_at: int = 0, lines: list[Line] = LINES, asked: str = "same") -> list[int]:
    """Run a job that dies at a line; returns the numbers of the lines that were computed."""
    computed: list[int] = []
    vectors = path.suffix in (".npy", ".parquet")

    def verb(numbers: list[int], texts: list[str]) -> Any:
        if dies_at in numbers:
            raise Killed
        computed.extend(numbers)
        return (measure if vectors else shout)(numbers, texts)

    format: Format = FORMATS[path.suffix[1:]]()
    run_to_file([lines], run_here(verb), format, path, {"asked": asked, "list": (1, 2)}, resume=resume, report=ignore)
    return computed


@pytest.fixture
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "WINDOW_LINES", 5)


@pytest.mark.usefixtures("_small_windows")
@pytest.mark.parametrize("ending", FORMATS)
def test_a_killed_job_ends_with_the_same_bytes(ending: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / f"whole.{ending}", tmp_path / f"broken.{ending}"
    run(whole, resume=False)
    body = broken if ending != "parquet" else tmp_path / f"broken.{ending}.partial"
    with pytest.raises(Killed):
        run(broken, resume=False, dies_at=14)
    for dies_at, torn in ((14, b""), (16, b"half a li"), (34, b"a whole line\nand a half")):
        with body.open("ab") as file:  # what a kill in the middle of writing leaves behind
            file.write(torn)
        with pytest.raises(Killed):
            run(broken, resume=True, dies_at=dies_at)
    assert min(run(broken, resume=True)) == 31, "what was done is not done again"
    if ending == "parquet":
        assert parquet.read_table(broken).equals(parquet.read_table(whole))
        assert not body.exists()
    else:
        assert broken.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("_small_windows")
@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_job_killed_before_its_first_note_starts_anew(ending: str, share: float, tmp_path: Path) -> None:
    whole, broken = tmp_path / f"whole.{ending}", tmp_path / f"broken.{ending}"
    run(whole, resume=False)
    body = broken if ending != "parquet" else tmp_path / f"broken.{ending}.partial"
    head = FORMATS[ending]().head
    body.write_bytes(head[: int(share * len(head))])
    run(broken, resume=True)
    if ending != "parquet":
        assert broken.read_bytes() == whole.read_bytes()
    else:
        assert parquet.read_table(broken).equals(parquet.read_table(whole))


@pytest.mark.usefixtures("_small_windows")
def test_a_finished_job_resumes_to_itself_and_grows_with_its_input(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    run(path, resume=True)
    before = path.read_bytes()
    assert run(path, resume=True) == []
    assert path.read_bytes() == before
    more = [*LINES, Line(("one more",))]
    assert run(path, resume=True, lines=more) == [48]
    assert path.read_bytes() == before + b"ONE MORE\n"


@pytest.mark.usefixtures("_small_windows")
def test_another_input_or_other_options_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with pytest.raises(Killed):
        run(path, resume=False, dies_at=9)
    before = path.read_bytes()
    with pytest.raises(DataError, match="another input"):
        run(path, resume=True, lines=[Line(("other",)), *LINES])
    with pytest.raises(DataError, match="another input"):
        run(path, resume=True, lines=LINES[:3])
    with pytest.raises(DataError, match=r"other settings \(asked\)"):
        run(path, resume=True, asked="another")
    with pytest.raises(DataError, match="exists already"):
        run(path, resume=False)
    assert path.read_bytes() == before
    path.write_bytes(before[:3])
    with pytest.raises(DataError, match="shorter"):
        run(path, resume=True)
    (tmp_path / "out.txt.progress").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        run(path, resume=True)
    (tmp_path / "out.txt.progress").unlink()
    with pytest.raises(DataError, match="cannot be resumed"):
        run(path, resume=True)
    with pytest.raises(DataError, match="cannot be written"):
        run(tmp_path / "nowhere" / "out.txt", resume=False)


@pytest.mark.usefixtures("_small_windows")
def test_two_jobs_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"

    def verb(numbers: list[int], texts: list[str]) -> list[Translation]:
        with pytest.raises(DataError, match="another job is writing to it"):
            run(path, resume=True)
        return [Translation(text) for text in texts]

    asked = {"asked": "same", "list": (1, 2)}
    run_to_file([LINES[:4]], run_here(verb), FORMATS["txt"](), path, asked, resume=False, report=ignore)
    assert path.read_text().count("\n") == 4


@pytest.mark.usefixtures("_small_windows")
def test_a_full_disk_is_told_as_such() -> None:
    with (
        Path("/dev/full").open("wb", buffering=0) as full,
        pytest.raises(DataError, match="cannot be written: No space left"),
    ):
        run_to_stream([LINES[:4]], run_here(shout), JsonFormat(), full, ignore)


@pytest.mark.usefixtures("_small_windows")
def test_forms_say_the_same(tmp_path: Path) -> None:
    for ending in ("npy", "parquet", "jsonl", "txt"):
        run(tmp_path / f"out.{ending}", resume=False)
    array: NDArray[np.float32] = np.load(tmp_path / "out.npy")
    assert array.shape == (47, 3)
    assert array.dtype == np.float32
    table = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["line"] == list(range(1, 48))
    np.testing.assert_array_equal(np.array(table["vector"], np.float32), array)
    objects = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [o["line"] for o in objects] == list(range(1, 48))
    assert objects[6] == {"line": 7, "error": "refused", "message": "there is a q"}
    plain = (tmp_path / "out.txt").read_text().split("\n")
    assert plain[6] == "[failed: refused]"
    assert [o.get("text", "[failed: refused]") for o in objects] == plain[:-1]


def test_the_row_of_a_failure_is_not_a_number() -> None:
    rows = NpyFormat((2,)).write(1, [Vector(np.ones(2, np.float32)), Failure("nul", "")])
    np.testing.assert_array_equal(np.frombuffer(rows, "<f4").reshape(2, 2), [[1, 1], [np.nan, np.nan]])


def test_a_line_break_in_an_answer_breaks_no_line() -> None:
    found = [Translation("a\nb\r\nc"), Translation("d")]
    assert TextFormat(lambda t: t.text).write(1, found) == b"a b c\nd\n"
    assert json.loads(JsonFormat().write(1, found).splitlines()[0])["text"] == "a\nb\r\nc"


def test_an_error_that_is_no_fault_of_a_line_stops_the_job() -> None:
    def broken(numbers: list[int], texts: list[str]) -> list[Translation]:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        apply_verb([Line(("x",))], broken)
    assert issubclass(DataError, SeqloomError)
