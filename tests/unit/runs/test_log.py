"""A log is read while it is written, and however it was damaged."""

from pathlib import Path

from seqloom.runs.log import Log, LogReader, read_log


def test_each_reading_gives_what_is_new(tmp_path: Path) -> None:
    log, reader = Log(tmp_path / "log.jsonl", writes=True), LogReader(tmp_path / "log.jsonl")
    assert reader.read().lines == []  # there is no file yet
    log.add(step=1)
    assert reader.read().lines == [{"step": 1}]
    assert reader.read().lines == []
    for step in range(2, 50):
        log.add(step=step, text="a \u2028 b")
    assert [line["step"] for line in reader.read().lines] == list(range(2, 50))


def test_a_line_that_is_half_written_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n{"st')
    reader = LogReader(path)
    found = reader.read()
    assert (found.lines, found.damaged) == ([{"step": 1}], 0)
    with path.open("ab") as file:
        file.write(b'ep": 2}\n')
    assert reader.read().lines == [{"step": 2}]


def test_a_log_that_was_cut_is_read_anew(tmp_path: Path) -> None:
    log, reader = Log(tmp_path / "log.jsonl", writes=True), LogReader(tmp_path / "log.jsonl")
    sizes = []
    for step in range(20):
        log.add(step=step)
        sizes.append(log.size)
    reader.read()
    log.cut(sizes[9])
    found = reader.read()
    assert found.anew
    assert [line["step"] for line in found.lines] == list(range(10))
    for step in range(10, 40):  # longer than before, and different
        log.add(step=step, other=True)
    assert not reader.read().anew
    log.cut(sizes[9])
    for step in range(10, 60):
        log.add(step=step)
    found = reader.read()
    assert found.anew
    assert [line["step"] for line in found.lines] == list(range(60))
    log.path.unlink()
    assert reader.read().anew


def test_what_is_no_line_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n\n[]\n\xff\xfe\nnull\n{"step": 2}{"step": 3}\n')
    with path.open("ab") as file:
        file.write(b"[" * 100_000 + b'\n{"step": 4}\n')
    found = LogReader(path).read()
    assert (found.lines, found.damaged) == ([{"step": 1}, {"step": 4}], 6)
    assert read_log(path) == found.lines
