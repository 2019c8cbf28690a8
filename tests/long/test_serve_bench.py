"""The short form of bench/serve.py: what it measures, that it goes on where it was, and its arithmetic."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "serve.jsonl"


def measure(kept: Path, *options: str) -> str:
    command = [sys.executable, str(BENCH / "serve.py"), "--kept", str(kept), "--seconds", "1.5", "--rounds", "1"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(kept: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept.read_text().splitlines()][1:]


def test_servers_are_measured_and_their_answers_compared(kept: Path) -> None:
    said = measure(kept, "--tasks", "translation", "--parts", "engine", "peers", "--only", "Seqloom", "CTranslate2")
    peers = [one for one in read(kept) if one["part"] == "peers"]
    assert [(one["server"], one["clients"]) for one in peers] == [
        (server, clients) for server in ("Seqloom", "CTranslate2") for clients in (1, 16, 64)
    ]
    for one in peers:
        assert one["equal"] == "8 of 8"
        assert one["rate"] > 0
        assert 0 < one["median"] <= one["worst"]
        assert one["front"] + one["others"] > 0
    assert "| translation | CTranslate2 " in said


def test_a_run_that_was_stopped_goes_on_where_it_was(kept: Path) -> None:
    before = read(kept)
    assert before, "the test before has measured"
    kept.write_text("".join(kept.read_text().splitlines(keepends=True)[:-1]))  # the last measurement is missing
    measure(kept, "--tasks", "translation", "--parts", "engine", "peers", "--only", "Seqloom", "CTranslate2")
    after = read(kept)
    assert after[:-1] == before[:-1]
    assert after[-1]["clients"] == before[-1]["clients"]


def test_one_core_and_all_are_measured(kept: Path) -> None:
    said = measure(kept, "--tasks", "embeddings", "--parts", "scaling")
    forms = [one for one in read(kept) if one["part"] == "scaling"]
    assert len({one["form"] for one in forms}) == len(forms) >= 2
    with_workers = next(one for one in forms if one["workers"] > 1)
    assert with_workers["others"] > with_workers["front"] > 0, "the workers compute"
    assert "## How far it goes" in said


def test_the_arithmetic_of_cores_and_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    reach = runpy.run_path(str(BENCH / "serve_report.py"))["reach"]
    # 1 ms of 10 ms in the process that answers: ten cores keep one server busy, and 32 cores keep four.
    assert reach(0.001, 0.01, 8, 1) == "800/s"
    assert reach(0.001, 0.01, 32, 1) == "3,200/s by 4 servers"
    assert reach(0.001, 0.01, 32, 4) == "12,800/s by 16 servers"
