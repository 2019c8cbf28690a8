"""`seqloom check` as a user runs it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


def check(*arguments: str, folder: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seqloom", "check", *arguments, "--no-forecast"]
    return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.de").write_text("guten Tag\n\nauf Wiedersehen\n", encoding="utf-8")
    (tmp_path / "data/train.en").write_text("hello\nthere\ngoodbye\n", encoding="utf-8")
    (tmp_path / "de-en.toml").write_text(
        'task = "translation"\n[data.train]\nsource = "data/train.de"\ntarget = "data/train.en"\n'
    )
    return tmp_path


def test_an_error_is_told_with_its_place_and_fails(project: Path) -> None:
    done = check("de-en.toml", folder=project)
    assert done.returncode == 1
    assert "error one_sided_blank (train: 1)" in done.stdout
    assert "data/train.de:2: the source is blank" in done.stdout
    assert "train: 3 records in 2 files" in done.stdout
    assert "1 error, 0 warnings: training would refuse this data" in done.stdout
    assert done.stderr == ""
    assert "\x1b" not in done.stdout, "no colours into a pipe"


def test_json_has_everything(project: Path) -> None:
    done = check("de-en.toml", "--json", folder=project)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["findings"][0]["kind"] == "one_sided_blank"
    assert report["findings"][0]["places"] == [{"path": "data/train.de", "line": 2, "message": "the source is blank"}]
    assert report["splits"][0]["records"] == 3
    assert report["splits"][0]["columns"]["target"]["words"] == 3


def test_the_repaired_copy_is_ready_to_use(project: Path) -> None:
    done = check("de-en.toml", "--fix", "repaired", folder=project)
    assert done.returncode == 0
    assert "dropped one_sided_blank: 2" in done.stdout
    lines = done.stdout.split("put this in place of your [data.train], [data.valid] and [data.test]:")[1]
    assert tomllib.loads(lines)["data"]["train"]["source"] == ["repaired/train/train.de"]
    (project / "fixed.toml").write_text('task = "translation"\n' + lines)
    again = check("fixed.toml", folder=project)
    assert again.returncode == 0
    assert "train: 2 records" in again.stdout
    assert (project / "data/train.de").read_text(encoding="utf-8") == "guten Tag\n\nauf Wiedersehen\n"
    refused = check("de-en.toml", "--fix", "repaired", folder=project)
    assert refused.returncode == 1
    assert "not empty" in refused.stderr


def test_a_setting_can_be_given_on_the_command_line(project: Path) -> None:
    done = check("de-en.toml", "data.checks.one_sided_blank=warn", folder=project)
    assert done.returncode == 0
    assert "warn one_sided_blank (train: 1)" in done.stdout


def test_standard_input(tmp_path: Path) -> None:
    (tmp_path / "lm.toml").write_text('task = "language-model"\n[data.train]\nfiles = "-"\n')
    done = check("lm.toml", folder=tmp_path, stdin="one line\nanother\n")
    assert done.returncode == 0
    assert "train: 2 records in 1 file" in done.stdout
    said = "standard input can be read only once, so the data was not prepared as training prepares it"
    assert said in done.stdout
    told = json.loads(check("lm.toml", "--json", folder=tmp_path, stdin="one line\nanother\n").stdout)
    assert said in told["not_rehearsed"]
    (tmp_path / "lines").write_text("one line\nanother\n" * 40)
    (tmp_path / "lm.toml").write_text('task = "language-model"\n[data.train]\nfiles = "lines"\n')
    assert said not in check("lm.toml", "--no-forecast", folder=tmp_path).stdout


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ('task = "translation"\n[data.train]\nsource = "a"\n', "data.train[0].target: is missing"),
        ('task = "translation"\n[data.train]\nsource = "a"\ntarget = "b"\ntarge = "c"\n', 'did you mean "target"?'),
        (
            'task = "translation"\n[data.train]\nformat = "text"\nfiles = "a"\n',
            '"text" is not one of "parallel", "tsv"',
        ),
        ('task = "tagging"\n[data.train]\nfiles = "a"\n[data.checks]\nblank = "warning"\n', '"warning" is not one of'),
        ('task = "translating"\n', "task"),
        ("task = \n", "not TOML"),
    ],
)
def test_a_wrong_configuration_is_wrong_usage(config: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(config)
    done = check("c.toml", folder=tmp_path)
    assert done.returncode == 2
    assert fault in done.stderr
    assert "Traceback" not in done.stderr


def test_text_from_the_data_cannot_command_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("\x1b]0;title\x07evil a\ngood b\n")
    (tmp_path / "c.toml").write_text('task = "classification"\n[data]\ntrain = {format = "label-first", files = "t"}\n')
    done = check("c.toml", folder=tmp_path)
    assert "\\x1b]0;title" in done.stdout
    assert "\x1b" not in done.stdout
