"""docs/extending.md is followed to the letter: in a copy of the package, its changes are made and its commands run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from walkthroughs import ROOT, WalkThrough, apply, find_missing, read_page
from warm import warm_seqloom

PAGE = read_page()
every_walk_through = pytest.mark.parametrize("walk", PAGE, ids=[walk.name for walk in PAGE])


@pytest.mark.long
@every_walk_through
def test_it_keeps_its_promises(walk: WalkThrough, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = walk.change_copy(tmp_path), tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(source))
    printed, promises = "", 0
    with warm_seqloom(tmp_path) as commands:
        monkeypatch.setenv(
            "PATH", os.pathsep.join(map(str, (commands, Path(sys.executable).parent, os.environ["PATH"])))
        )
        for block in walk.select("use"):
            if block.file is not None:
                block.write(folder)
            elif block.language == "text":
                missing = find_missing(block.text, printed)
                assert missing is None, f"the page promises\n{missing}\nbut this was printed:\n{printed}"
                promises += 1
            else:
                command = {"sh": ["bash", "-ceuo", "pipefail"], "python": [sys.executable, "-c"]}[block.language]
                done = subprocess.run(
                    [*command, block.text], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
                printed = done.stdout
                assert done.returncode == 0, f"{block.text}\n{printed}"
    assert promises


@every_walk_through
def test_it_touches_at_most_three_files_of_the_package(walk: WalkThrough) -> None:
    files = {block.file for block in walk.select("change")}
    assert 2 <= len(files) <= 3
    assert all(file is not None and file.startswith("src/seqloom/") for file in files)
    assert len([block for block in walk.select("change") if block.language == "python"]) == 1


def test_the_six_of_the_table_are_there() -> None:
    kinds = ["position encoding", "encoder family", "task", "data format", "metric", "Hugging Face layout"]
    assert [walk.name.split(" ", 1)[1] for walk in PAGE] == kinds


@every_walk_through
def test_its_code_is_written_as_the_package_is(walk: WalkThrough, tmp_path: Path) -> None:
    source = walk.change_copy(tmp_path)
    files = sorted({str(tmp_path / str(block.file)) for block in walk.select("change")})
    ruff = Path(sys.executable).with_name("ruff")
    for check in (["check"], ["format", "--check", "--diff"]):
        command = [ruff, *check, "--no-cache", "--config", ROOT / "pyproject.toml", *files]
        done = subprocess.run(command, cwd=source, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


class TestApplying:
    def test_lines_go_where_the_others_are(self) -> None:
        assert apply(" b\n+c\n@@\n-d\n+e\n", "a\nb\nd\n") == "a\nb\nc\ne\n"

    @pytest.mark.parametrize("text", ["a\n", "b\nb\n"])
    def test_a_place_that_is_not_there_once_is_refused(self, text: str) -> None:
        with pytest.raises(AssertionError, match="exactly once"):
            apply(" b\n+c\n", text)

    def test_lines_without_a_place_are_refused(self) -> None:
        with pytest.raises(AssertionError, match="nothing says where"):
            apply("+c\n", "a\n")


def test_promised_lines_are_looked_for_in_their_order() -> None:
    printed = "one 1.5\nnoise\ntwo\n"
    assert find_missing("one …\ntwo\n", printed) is None
    assert find_missing("two\none …\n", printed) == "one …"
