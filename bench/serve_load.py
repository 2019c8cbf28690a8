"""The load of bench/serve.py, in a process of its own, which reads what to ask as JSON from its input.

Clients keep their connections, and ask again as soon as they have an answer. They warm the server up first; what counts
are the answers that arrive in the window after that, while all clients go on asking. HTTP is written by hand, since a
client's library would take CPU from the server.
"""

import asyncio
import json
import random
import resource
import statistics
import sys
import time
from typing import Any, NamedTuple

WORDS = [f"w{number:04d}" for number in range(4000)]
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


async def ask(port: int, requests: list[tuple[int, bytes]], until: float, seen: list[Seen]) -> None:
    """One client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        words, request = requests[number % len(requests)]
        number += 1
        started = time.perf_counter()
        writer.write(request)
        await read_answer(reader)
        end = time.perf_counter()
        seen.append(Seen(words, end, end - started))
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


def describe(seen: list[Seen], begin: float, end: float) -> dict[str, float]:
    """The answers of a window: how many a second, and how long they took."""
    inside = [one for one in seen if begin <= one.end < end]
    if len(inside) < 3:
        raise SystemExit(f"only {len(inside)} answers in {end - begin:.1f} s; give more --seconds")
    shares = []
    for most in CLASSES:
        least = max((one for one in CLASSES if one < most), default=0)
        if len(times := [one.seconds for one in inside if least < one.words <= most]) >= 3:
            shares.append(find_percentile(times, 0.99) / statistics.median(times))
    times = [one.seconds for one in inside]
    return {
        "rate": len(inside) / (end - begin),
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
    seen: list[Seen] = []
    begin = time.perf_counter() + warm
    end = begin + seconds
    used: list[tuple[float, float]] = []

    async def watch() -> None:
        for moment in (begin, end):
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            used.append((time.perf_counter(), measure_cpu()))
            sys.stdout.write(f"{json.dumps({'window': len(used)})}\n")
            sys.stdout.flush()

    await asyncio.gather(watch(), *(ask(port, requests, end, seen) for port, requests in every))
    (before, cpu_before), (after, cpu_after) = used
    return {**describe(seen, begin, end), "load": (cpu_after - cpu_before) / (after - before)}


def main() -> None:
    given = json.load(sys.stdin)
    if "texts" in given:
        print(json.dumps(asyncio.run(ask_once(**given))))
    else:
        print(json.dumps(asyncio.run(load(**given))))


if __name__ == "__main__":
    main()
