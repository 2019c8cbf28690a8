"""What the demo says in the end is what a shell can run."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from seqloom import demo


def test_a_shell_that_lacks_seqloom_is_told_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    venv.create(tmp_path / ".venv", symlinks=True)
    seqloom = tmp_path / ".venv" / "bin" / "seqloom"
    seqloom.write_text("#!/bin/sh\necho found\n")
    seqloom.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    line = demo.say_where()
    said = subprocess.run(["bash", "-c", f"{line}\nseqloom"], capture_output=True, text=True, check=True)
    assert said.stdout == "found\n"
    assert str(tmp_path) not in line
    monkeypatch.setenv("PATH", f"{seqloom.parent}:/usr/bin:/bin")
    assert demo.say_where() == ""
