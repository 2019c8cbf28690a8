"""Importing, training and using where there is no fcntl, no `resource`, no directory handle and no UTF-8 locale.

Windows lacks the first three, many containers the last. What is simulated here is their absence, not those systems.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ELSEWHERE = """
import builtins, os, sys
real_import = builtins.__import__
def import_without(name, globals=None, *rest, **more):
    if name in ("fcntl", "resource") and (globals or {}).get("__name__", "").startswith("seqloom"):
        raise ImportError(f"there is no {name} here")
    return real_import(name, globals, *rest, **more)
builtins.__import__ = import_without
real_open = os.open
def open_no_folder(path, flags, *rest, **more):
    if not isinstance(path, int) and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return real_open(path, flags, *rest, **more)
os.open = open_no_folder
import locale
assert "utf" not in locale.getpreferredencoding(False).lower()
from seqloom.cli.main import main
if __name__ == "__main__":  # processes that it starts import this file, too
    main()
"""
SENTENCES = [
    f"{who} mö\u00df\u0142e \u732b {what}" for who in ("der", "die", "das") for what in ("ä", "ö", "ü", "ß")
] * 4


def run_elsewhere(folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment.pop("PYTHONIOENCODING", None)
    script = folder / "elsewhere.py"
    script.write_text(ELSEWHERE, encoding="utf-8")
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, input=given.encode(), capture_output=True, env=environment, cwd=folder, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    for split in ("train", "valid"):
        (folder / f"{split}.a").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
        (folder / f"{split}.b").write_text("\n".join(text.upper() for text in SENTENCES) + "\n", encoding="utf-8")
    (folder / "mine.toml").write_text(
        """# ünïcode
task = "translation"
size = "tiny"
tokenizer = "characters"
data.train = {source = "train.a", target = "train.b"}
data.valid = {source = "valid.a", target = "valid.b"}
train.steps = 4
train.validate_every = 2
train.save_every = 2
""",
        encoding="utf-8",
    )
    done = run_elsewhere(folder, "train", "mine.toml", "--out", "run")
    assert done.returncode == 0, done.stderr.decode()
    return folder


def test_a_run_is_whole_and_verifies(folder: Path) -> None:
    done = run_elsewhere(folder, "verify", "run")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads((folder / "run" / "manifest.json").read_bytes())["files"]


def test_verbs_read_and_write_utf8(folder: Path) -> None:
    done = run_elsewhere(folder, "translate", "run", "--json", given="der mößłe 猫 ä\n")
    assert done.returncode == 0, done.stderr.decode()
    assert "text" in json.loads(done.stdout.decode("utf-8"))


def test_a_job_writes_its_file(folder: Path) -> None:
    done = run_elsewhere(folder, "translate", "run", "valid.a", "-o", "out.txt")
    assert done.returncode == 0, done.stderr.decode()
    assert len((folder / "out.txt").read_text(encoding="utf-8").splitlines()) == len(SENTENCES)


def test_data_are_checked_and_a_training_is_forecast(folder: Path) -> None:
    done = run_elsewhere(folder, "check", "mine.toml", "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout.decode("utf-8"))["forecast"]["peak_memory_bytes"] is None


def test_a_template_and_an_evaluation_are_printed(folder: Path) -> None:
    assert run_elsewhere(folder, "new", "translation").returncode == 0
    done = run_elsewhere(folder, "eval", "run", "--samples", "5")
    assert done.returncode == 0, done.stderr.decode()
    assert b"bleu" in done.stdout
