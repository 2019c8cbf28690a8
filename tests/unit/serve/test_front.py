"""The front of replicas, without a cluster: what is lost is asked again, and nobody waits for what is gone."""

import asyncio
import io
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from seqloom.serve import front
from seqloom.serve.app import write_refusal
from seqloom.serve.front import Front, LostError
from seqloom.serve.gate import Gate
from seqloom.serve.guard import Message
from seqloom.serve.limits import Limits
from seqloom.serve.log import Log
from seqloom.serve.metrics import Numbers
from seqloom.serve.replica import Asked

HEAD: Message = {"type": "http.response.start", "status": 200, "headers": []}


def part(text: bytes, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": text, "more_body": more}


class Script:
    """Replicas that answer as they are told: each list is what one of them says before it is lost, or has said all."""

    def __init__(self, *answers: list[Message | None]) -> None:
        self.answers, self.running, self.asked = list(answers), 2, list[Asked]()
        self.fault: Exception | None = None

    def count(self) -> int:
        if self.fault is not None:
            raise self.fault
        return self.running

    async def ask(self, asked: Asked) -> AsyncGenerator[list[Message]]:
        self.asked.append(asked)
        for message in self.answers.pop(0):
            await asyncio.sleep(0)
            if message is None:
                raise LostError
            yield [message]

    def describe(self) -> list[str]:
        return []

    def reload(self) -> list[str]:
        return []

    def find_strangers(self) -> list[str]:
        return []

    async def read_numbers(self) -> dict[str, tuple[int, Numbers]]:
        return {}


@contextmanager
def fronting(script: Script, **limits: int) -> Iterator[tuple[Front, io.StringIO]]:
    heard = io.StringIO()
    made = Front(script, Limits(**limits), Log(heard))
    made.start()
    try:
        yield made, heard
    finally:
        made.stop()
        assert made.backlog == 0


def ask(made: Front) -> httpx.Response:
    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(Gate(made, made, write_refusal))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/translate", json={"q": "a"})

    return asyncio.run(run())


def test_a_request_whose_replica_is_lost_goes_to_another() -> None:
    script = Script([None], [HEAD, None], [HEAD, part(b"an ", more=True), part(b"answer")])
    with fronting(script) as (made, _):
        assert ask(made).text == "an answer"
        assert [one.body for one in script.asked] == [b'{"q":"a"}'] * 3
        assert made.metrics.total("seqloom_lost_total") == 2


def test_a_request_that_ends_replicas_is_given_up() -> None:
    script = Script([None], [None], [None], [HEAD, part(b"never")])
    with fronting(script) as (made, _):
        answer = ask(made)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert len(script.answers) == 1


def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    script = Script([HEAD, part(b"half", more=True), None], [HEAD, part(b"never")])
    with fronting(script) as (made, heard), pytest.raises(AssertionError):  # httpx misses the end, as clients do
        ask(made)
    assert len(script.answers) == 1
    assert '"event": "broken off"' in heard.getvalue()


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    class Slow(Script):
        async def ask(self, asked: Asked) -> AsyncGenerator[list[Message]]:
            await asyncio.sleep(3600)
            yield []

    with fronting(Slow(), seconds=1) as (made, _):
        answer = ask(made)
    assert answer.status_code == 503
    assert "took longer than 1 s" in answer.text


def test_replicas_are_watched_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the cluster that fails is not the last one."""
    monkeypatch.setattr(front, "_PAUSE", 0.01)
    script = Script()
    with fronting(script) as (made, heard):
        script.fault = RuntimeError("the cluster does not answer")
        wait_until(lambda: '"event": "fault"' in heard.getvalue())
        script.fault, script.running = None, 0
        wait_until(lambda: made.health["status"] == "without replicas")
        assert ask(made).status_code == 503


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)
