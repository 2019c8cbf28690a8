"""`seqloom info` as a person and a program read it."""

import json
import os

import pytest

import seqloom
from forked import seqloom as call
from seqloom.native.library import describe


def test_a_person_reads_which_kernels_are_used_and_why() -> None:
    done = call("info")
    assert done.returncode == 0
    lines = dict(line.split("  ", 1) for line in done.stdout.decode().splitlines())
    assert lines["seqloom"].strip().startswith(f"{seqloom.__version__}, Python ")
    assert lines["kernels"].strip() == describe().reason
    assert "torch" in lines["packages"]
    assert "cpu" in lines["devices"]


def test_a_program_reads_json() -> None:
    found = json.loads(call("info", "--json").stdout)
    assert found["kernels"] == json.loads(json.dumps(describe()._asdict()))
    assert found["processor"]["cores"] >= 1
    assert found["versions"]["torch"]
    assert found["memory"] > 2**20


def test_an_unknown_level_is_a_fault_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqloom.native import library

    monkeypatch.setattr(library._State, "found", None)
    monkeypatch.setitem(os.environ, "SEQLOOM_KERNELS", "fast")
    done = call("info")
    assert done.returncode == 2
    assert done.stderr.decode().startswith(
        "error: SEQLOOM_KERNELS=fast: this level of kernels is not there; there is: "
    )
