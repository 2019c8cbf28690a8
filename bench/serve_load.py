"""The load of bench/serve.py, in a process of its own, which reads what to ask as JSON from its input.

Clients keep their connections, and ask again as soon as they have an answer. Once each of them has one, and the server
is warm, a window begins. What counts are the answers that arrive in it, while all clients go on asking. Answers to one
batch come at once, so the window begins and ends where some have just come, and not in the middle of a batch. HTTP is
written by hand, since a client's library would take CPU from the server.
"""

import asyncio
import json
import math
import random
import resource
import statistics
import sys
import time
from typing import Any, NamedTuple

WORDS = [f"w{number:04d}" for number in range(4000)]
_GAP = 0.01
"""Seconds without an answer that end those to one batch."""
_PATIENCE = 10.0
"""Seconds in which every client should have had an answer."""
CLASSES = (16, 28, 40)
"""The words at most of a text, by class of lengths."""


class Seen(NamedTuple):
    """An answer."""

    words: int
    """Of the text that was asked."""
    end: float
    seconds: float


def make_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 5 to 40 words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(5, 40))) for _ in range(count)]


def make_request(port: int, path: str, template: dict[str, Any], text: str) -> bytes:
    """A request, whole: the text stands where the template has {text}."""
    body = json.dumps({name: text if value == "{text}" else value for name, value in template.items()}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """The body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    body = await reader.readexactly(int(length.partition(b":")[2]))
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise SystemExit(f"refused: {head!r} {body[:300]!r}")
    return body


class Window:
    """The time that counts, and what was seen in it and before."""

    def __init__(self, clients: int) -> None:
        self.begin = self.end = math.inf
        self.seen: list[Seen] = []
        self.waiting = clients
        """Clients who have no answer yet."""

    async def open(self, warm: float) -> None:
        """Begin once the server is warm."""
        started = time.perf_counter()
        while (spent := time.perf_counter() - started) < warm or (self.waiting and spent < _PATIENCE):
            await asyncio.sleep(_GAP / 2)
        self.begin = await self._await_answers(1)

    async def close(self, seconds: float) -> None:
        """End after so many seconds."""
        before = len(self.seen)
        await asyncio.sleep(seconds)
        self.end = await self._await_answers(max(1, before + 3 - len(self.seen)))

    async def _await_answers(self, count: int) -> float:
        """Wait for answers, and until no more come at once; when the last one came."""
        started, before = time.perf_counter(), len(self.seen)
        while len(self.seen) < before + count and time.perf_counter() - started < _PATIENCE:
            await asyncio.sleep(_GAP / 2)
        started, now = time.perf_counter(), time.perf_counter()
        while now - started < 10 * _GAP and self.seen and now - self.seen[-1].end < _GAP:
            await asyncio.sleep(_GAP / 2)
            now = time.perf_counter()
        return self.seen[-1].end if self.seen else now


async def ask(port: int, requests: list[tuple[int, bytes]], window: Window) -> None:
    """One client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < window.end:
        words, request = requests[number % len(requests)]
        number += 1
        started = time.perf_counter()
        writer.write(request)
        await read_answer(reader)
        end = time.perf_counter()
        window.seen.append(Seen(words, end, end - started))
        window.waiting -= number == 1
    writer.close()


async def ask_once(port: int, path: str, template: dict[str, Any], texts: list[str]) -> list[Any]:
    """The answers to some texts, one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for text in texts:
        writer.write(make_request(port, path, template, text))
        found.append(json.loads(await read_answer(reader)))
    writer.close()
    return found


def measure_cpu() -> float:
    """Seconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def describe(window: Window) -> dict[str, float]:
    """The answers of a window: how many a second, and how long they took."""
    inside, seconds = [one for one in window.seen if window.begin < one.end <= window.end], window.end - window.begin
    if len(inside) < 3:
        raise SystemExit(f"only {len(inside)} answers in {seconds:.1f} s; give more --seconds")
    shares = []
    for most in CLASSES:
        least = max((one for one in CLASSES if one < most), default=0)
        if len(times := [one.seconds for one in inside if least < one.words <= most]) >= 3:
            shares.append(find_percentile(times, 0.99) / statistics.median(times))
    times = [one.seconds for one in inside]
    return {
        "seconds": seconds,
        "rate": len(inside) / seconds,
        "median": statistics.median(times),
        "worst": find_percentile(times, 0.99),
        "spread": max(shares, default=find_percentile(times, 0.99) / statistics.median(times)),
    }


def find_percentile(times: list[float], share: float) -> float:
    """The time that this share of the answers does not pass."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


async def load(
    ports: list[int], path: str, template: dict[str, Any], clients: int, warm: float, seconds: float
) -> dict[str, float]:
    """What is found with so many clients, dealt out to the ports."""
    every = []
    for client in range(clients):
        port = ports[client % len(ports)]
        texts = make_texts(100, seed=client)
        every.append((port, [(text.count(" ") + 1, make_request(port, path, template, text)) for text in texts]))
    window, used = Window(clients), list[tuple[float, float]]()

    def note() -> None:
        used.append((time.perf_counter(), measure_cpu()))
        sys.stdout.write(f"{json.dumps({'window': len(used)})}\n")
        sys.stdout.flush()

    async def watch() -> None:
        await window.open(warm)
        note()
        await window.close(seconds)
        note()

    await asyncio.gather(watch(), *(ask(port, requests, window) for port, requests in every))
    (before, cpu_before), (after, cpu_after) = used
    return {**describe(window), "load": (cpu_after - cpu_before) / (after - before)}


def main() -> None:
    given = json.load(sys.stdin)
    if "texts" in given:
        print(json.dumps(asyncio.run(ask_once(**given))))
    else:
        print(json.dumps(asyncio.run(load(**given))))


if __name__ == "__main__":
    main()
