"""`seqloom serve --engine ray` on two machines with a core each, of which one is lost under load."""

import asyncio
import importlib.util
import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import seqloom
from ray_cluster import Cluster, start_cluster
from unit.serve.conftest import make_run
from unit.serve.test_serve_command import serving

pytestmark = [
    pytest.mark.usefixtures("as_users_run"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra ray)"),
]
TEXTS = [f"the cat sees a dog and {'a bird and ' * number}a horse" for number in range(4)]
REQUESTS, CLIENTS = 240, 12


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_cluster(tmp_path_factory.mktemp("ray") / "log") as started:
        yield started


async def wait_for_replicas(client: httpx.AsyncClient, number: int) -> str:
    for _ in range(600):
        numbers = (await client.get("/metrics")).text
        if f"seqloom_replicas {number}\n" in numbers:
            return numbers
        await asyncio.sleep(0.2)
    raise AssertionError(f"there are never {number} replicas: {numbers}")


def test_a_machine_is_lost_under_load(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    monkeypatch.chdir(tmp_path)
    mt, lm = make_run(tmp_path / "mt", "translation"), make_run(tmp_path / "lm", "language-model")
    expected = {text: seqloom.load(mt).translate(text).text for text in TEXTS}
    generated = seqloom.load(lm).generate(TEXTS[0], max_length=9).text
    with serving(mt, lm, "--engine", "ray") as (server, address):
        # Names and languages choose as they do without Ray.
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        assert {one.id for one in client.models.list()} == {"mt", "lm"}
        asked: dict[str, Any] = {"model": "lm", "prompt": TEXTS[0], "max_tokens": 9, "temperature": 0}
        parts = [part.choices[0].text for part in client.completions.create(**asked, stream=True)]
        assert ("".join(parts), len(parts) > 2) == (generated, True)
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt' here; there are: mt"):
            client.completions.create(**{**asked, "model": "gpt"})
        assert httpx.get(f"{address}/v2/languages").json()[0]["language"] == "UND"
        assert httpx.post(f"{address}/translate", headers={"Host": "evil.example"}, data={"q": "a"}).status_code == 421
        statuses = asyncio.run(_ask_much(cluster, address, expected))
        assert statuses[200] == REQUESTS  # each was answered, at once or when it came again
        assert set(statuses) <= {200, 503}

        # A run that was trained further is loaded anew by the replica that is left.
        other = make_run(tmp_path / "other", "translation", "recurrent")
        for file in mt.iterdir():
            file.unlink() if file.is_file() else shutil.rmtree(file)
        shutil.copytree(other, mt, dirs_exist_ok=True)
        now = seqloom.load(mt).translate(TEXTS[0]).text
        assert now != expected[TEXTS[0]]
        server.send_signal(signal.SIGHUP)
        body = {"q": TEXTS[0], "source": "en", "target": "de"}
        for _ in range(300):  # none is refused meanwhile
            if (said := httpx.post(f"{address}/translate", json=body, timeout=60).json()["translatedText"]) == now:
                break
            assert said == expected[TEXTS[0]]
            time.sleep(0.2)
        assert said == now

        # One who leaves is not computed for, and SIGTERM loses nothing.
        asyncio.run(_leave(address))
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=300) == 0
        assert server.stderr is not None
        events = [json.loads(line) for line in server.stderr]
    assert {"replicas", "reload", "draining"} <= {event["event"] for event in events}
    noted = next(event for event in events if event.get("path") == "/v1/completions")
    assert (noted["model"], noted["characters"]) == ("lm", len(TEXTS[0]))


async def _ask_much(cluster: Cluster, address: str, expected: dict[str, str]) -> Counter[int]:
    """Ask from several clients, lose a machine when a quarter is answered, and check every answer."""
    statuses, lost = Counter[int](), asyncio.Event()
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:
        numbers = await wait_for_replicas(client, 2)
        assert 'seqloom_texts_total{model="lm",verb="generate",replica="' in numbers

        async def ask(number: int) -> None:
            for one in range(number, REQUESTS, CLIENTS):
                text = TEXTS[one % len(TEXTS)]
                while True:
                    answer = await client.post("/translate", json={"q": text, "source": "en", "target": "de"})
                    statuses[answer.status_code] += 1
                    if answer.status_code != 503:
                        break
                    await asyncio.sleep(int(answer.headers["retry-after"]))
                assert answer.json() == {"translatedText": expected[text]}
                if statuses[200] > REQUESTS // 4 and not lost.is_set():
                    lost.set()
                    await asyncio.to_thread(cluster.ask, {"remove": None})

        await asyncio.gather(*map(ask, range(CLIENTS)))
        assert lost.is_set()
        await wait_for_replicas(client, 1)
    return statuses


async def _leave(address: str) -> None:
    async with httpx.AsyncClient(base_url=address) as client:
        body = {"texts": ["the cat"] * 100, "max_length": 2000, "model": "lm"}
        for _ in range(5):
            with pytest.raises(httpx.TimeoutException):
                await client.post("/seqloom/v1/generate", json=body, timeout=0.3)
        for _ in range(100):
            numbers = (await client.get("/metrics", timeout=60)).text
            if "seqloom_backlog_lines 0\n" in numbers and "seqloom_backlog_requests 0\n" in numbers:
                return
            await asyncio.sleep(0.2)
    raise AssertionError(numbers)


def test_what_cannot_be_is_said(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from forked import seqloom as command

    run = make_run(tmp_path / "lm", "language-model")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    done = command("serve", run, "--engine", "ray", "--workers", 99, "--port", 0)
    assert done.returncode == 2
    assert b"--workers 99: a worker needs a core" in done.stderr
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    done = command("serve", run, "--engine", "ray", "--port", 0)
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    assert b"error: cannot use Ray at RAY_ADDRESS=nonsense" in done.stderr
