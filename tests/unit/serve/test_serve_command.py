"""The command from outside: an address, signals, an end that loses nothing, and what it refuses to do."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from seqloom.cli.main import app
from seqloom.errors import SeqloomError
from unit.serve.conftest import make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("run") / "lm", "language-model")


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "seqloom", "serve", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if found := re.match(r"at (http\S+);", line):
                    yield server, found[1]
                    break
        finally:
            if server.poll() is None:
                server.kill()


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_server_from_start_to_end(folder: Path, tmp_path: Path, workers: int) -> None:
    """Requests, a reload after the run has changed, and SIGTERM with a hundred requests in flight."""
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    with serving(f"lm={run}", "--workers", workers) as (server, address):
        health = httpx.get(f"{address}/health", timeout=60).json()
        assert (health["workers"], health["status"]) == (workers, "ready")
        body = {"texts": "the cat", "max_length": 40}
        before = httpx.post(f"{address}/seqloom/v1/generate", json=body, timeout=60).json()
        assert before["model"] == "lm"
        manifest = run / "manifest.json"
        manifest.touch()
        server.send_signal(signal.SIGHUP)
        assert server.stderr is not None
        said = next(line for line in map(json.loads, server.stderr) if line["event"] == "reload")
        assert said["said"] == ["lm: loaded anew"]
        assert httpx.post(f"{address}/seqloom/v1/generate", json=body, timeout=60).json() == before

        async def ask_many() -> list[httpx.Response]:
            async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=200)) as client:
                asked = [
                    asyncio.create_task(client.post(f"{address}/seqloom/v1/generate", json={**body, "max_length": 200}))
                    for _ in range(100)
                ]
                while True:  # until all have arrived; with the two before, these are 102
                    numbers = (await client.get(f"{address}/metrics")).text
                    if 'seqloom_texts_total{model="lm",verb="generate"} 102\n' in numbers:
                        break
                    await asyncio.sleep(0.01)
                server.send_signal(signal.SIGTERM)
                while (await client.get(f"{address}/health/ready")).status_code != 503:
                    await asyncio.sleep(0.01)
                late = await client.post(f"{address}/seqloom/v1/generate", json=body)
                assert (late.status_code, late.headers["retry-after"]) == (503, "1")
                return await asyncio.gather(*asked)

        answers = asyncio.run(ask_many())
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["results"][0]["text"] for answer in answers}) == 1
        assert server.wait(timeout=60) == 0
        assert server.stdout is not None
        assert server.stdout.read().splitlines()[-1] == "stopped"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}", "--host", "0.0.0.0"], "other machines can reach 0.0.0.0"),
        (["{run}", "{run}"], "two models have this name"),
        (["{folder}/nothing"], "there is no run here"),
        (["{run}", "--certificate", "{folder}/a.pem"], "go together"),
        (["{run}", "--keys", "{folder}/keys.txt"], "the keys cannot be read"),
        (["{run}", "--engine", "ctranslate2", "--workers", "2"], "CTranslate2 has threads of its own"),
        (["{run}", "--host", "203.0.113.7", "--open"], "is no address of this machine"),
        (["{run}", "--engine", "ray", "--explore", "--keys", "{folder}/k"], "leave it out with --engine ray"),
    ],
)
def test_what_goes_wrong_is_said(folder: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    written = [one.format(run=folder, folder=tmp_path) for one in arguments]
    done = CliRunner().invoke(app, ["serve", *written, "--port", "0"])
    assert done.exit_code != 0
    output = " ".join(done.output.replace("│", " ").split())  # without the box around a wrong usage
    assert said in (str(done.exception) if isinstance(done.exception, SeqloomError) else output)


def test_ray_is_optional(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = CliRunner().invoke(app, ["serve", str(folder), "--engine", "ray", "--port", "0"])
    assert str(done.exception) == "ray is not installed; pip install 'seqloom[ray]'"
