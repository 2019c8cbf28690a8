"""`seqloom serve` left alone with 64 clients: `python bench/soak.py [--minutes 30] [--write]`.

Models of random weights for five tasks. The clients ask in seven dialects, greedily, with beams, drawn or streamed;
one request in ten is left before its answer, one in ten is malformed. Every answer is compared with what the command
line prints for the same text. Then 1,000 clients ask and leave, and SIGTERM comes with 100 requests in flight.
"""

import argparse
import asyncio
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results import RELIABILITY, draw_table, write_section
from soak_requests import JSON, KINDS, MALFORMED

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
CLIENTS = 64
MOST = 0.05
"""The share by which memory may grow."""
WORDS = ["the", "a", "cat", "dog", "bird", "fish", "horse", "sees", "hears", "likes", "and", "every"]


@dataclass
class Report:
    """What was seen."""

    answers: Counter[str] = field(default_factory=Counter)
    left: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the start, and megabytes of all processes of the server."""
    backlog: int = -1
    """What waited five seconds after 1,000 clients had left."""
    drained: Counter[int] = field(default_factory=Counter)
    """The answers to the requests that were in flight at SIGTERM, by status."""
    code: int | None = None

    @property
    def growth(self) -> float:
        """The most memory in the last half of the time, as a multiple of that in the second quarter."""
        end = self.memory[-1][0]
        early = [size for moment, size in self.memory if end / 4 <= moment < end / 2]
        late = [size for moment, size in self.memory if moment >= end / 2]
        return max(late) / max(early) if early and late else math.nan


def make_texts() -> list[str]:
    """Texts of 1 to 12 words."""
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(24)]


def run_commands(folders: dict[str, Path], texts: list[str], folder: Path) -> dict[str, list[Any]]:
    """What the command line prints for all texts, by kind."""
    from typer.testing import CliRunner

    from seqloom.cli.main import app

    given, found = folder / "texts.txt", {}
    for kind in KINDS:
        verb, model, *options = kind.command
        lines: list[Any] = []
        for own in [[text] for text in texts] if kind.is_drawn else [texts]:
            given.write_text("\n".join(own) + "\n", encoding="utf-8")
            done = CliRunner().invoke(app, [verb, str(folders[model]), str(given), *options])
            if done.exit_code:
                raise SystemExit(f"{kind.command}: {done.output} {done.exception}")
            lines += [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        found[kind.name] = [kind.pick(line) for line in lines]
    return found


def agree(one: Any, other: Any) -> bool:
    """Whether two answers are equal: texts exactly, numbers to 1e-5."""
    match one, other:
        case float() | int(), float() | int() if not isinstance(one, bool):
            return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-5)
        case list(), list():
            return len(one) == len(other) and all(map(agree, one, other))
        case dict(), dict():
            return one.keys() == other.keys() and all(agree(one[name], other[name]) for name in one)
    return bool(one == other)


async def post(port: int, path: str, body: str, form: str = JSON, leave: float | None = None) -> tuple[int, bytes]:
    """The status and body of an answer; 0 for a client who leaves after so many seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        data = body.encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {form}\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        if leave is not None:
            await writer.drain()
            await asyncio.sleep(leave)
            return 0, b""
        answer = await reader.read()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    head_, _, rest = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head_.lower():
        rest = b"".join(_dechunk(rest))
    return int(head_.split(b" ", 2)[1]), rest


def _dechunk(body: bytes) -> Iterator[bytes]:
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        yield body[:length]
        body = body[length + 2 :]


async def ask(port: int, until: float, seed: int, texts: list[str], wanted: dict[str, list[Any]], seen: Report) -> None:
    """One client."""
    draw = random.Random(seed)
    while time.monotonic() < until:
        kind, number, chance = draw.choice(KINDS), draw.randrange(len(texts)), draw.random()
        if chance < 0.1:
            path, body = draw.choice(MALFORMED)
            status, _ = await post(port, path, body)
            seen.refused += 1
            if not 400 <= status < 500:
                seen.wrong.append(f"malformed: {path} {body}: {status}")
        elif chance < 0.2:
            long = {"model": "language-model", "texts": texts, "min_length": 100, "max_length": 100}
            await post(port, "/seqloom/v1/generate", json.dumps(long), leave=draw.uniform(0, 0.1))
            seen.left += 1
        else:
            status, body_ = await post(port, kind.path, kind.write(texts[number]), kind.form)
            if status != 200 or not agree(kind.read(body_), wanted[kind.name][number]):
                seen.wrong.append(f"{kind.name}: {texts[number]!r}: {status} {body_!r}")
            seen.answers[kind.name] += 1


async def watch(server: int, until: float, seen: Report) -> None:
    """Note the memory of the server and its workers."""
    started = time.monotonic()
    while time.monotonic() < until:
        seen.memory.append((time.monotonic() - started, sum(map(measure_memory, (server, *list_children(server))))))
        await asyncio.sleep(1)


def measure_memory(process: int) -> float:
    """Megabytes that a process has to itself, or shares with others in equal parts."""
    try:
        found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return 0.0 if found is None else int(found[1]) / 1024


def list_children(process: int) -> list[int]:
    """The processes that a process has started."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(one) for file in found for one in file.read_text().split()]


async def read_backlog(port: int) -> int:
    """What waits, as /metrics says."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return int(re.findall(r"^seqloom_backlog_lines (\d+)$", text, re.MULTILINE)[0])


async def soak(server: Any, port: int, seconds: float, texts: list[str], wanted: dict[str, list[Any]]) -> Report:
    """The whole load; the server has ended afterwards."""
    seen = Report()
    until = time.monotonic() + seconds
    clients = (ask(port, until, seed, texts, wanted, seen) for seed in range(CLIENTS))
    await asyncio.gather(watch(server.pid, until, seen), *clients)
    long = json.dumps({"model": "language-model", "texts": texts[0], "min_length": 100, "max_length": 100})
    for _ in range(10):
        await asyncio.gather(*(post(port, "/seqloom/v1/generate", long, leave=0.01) for _ in range(100)))
    for _ in range(50):
        seen.backlog = await read_backlog(port)
        if not seen.backlog:
            break
        await asyncio.sleep(0.1)
    flying = [asyncio.create_task(post(port, "/seqloom/v1/generate", long)) for _ in range(100)]
    while await read_backlog(port) < 100 and not all(one.done() for one in flying):
        await asyncio.sleep(0.01)
    server.send_signal(signal.SIGTERM)
    seen.drained = Counter([status for status, _ in await asyncio.gather(*flying)])
    seen.code = server.wait(timeout=120)
    return seen


@contextmanager
def serving(folders: dict[str, Path], workers: int) -> Iterator[tuple[Any, int]]:
    """The server, and its port."""
    named = [f"{name}={folder}" for name, folder in folders.items()]
    command = [sys.executable, "-m", "seqloom", "serve", *named, "--port", "0", "--workers", str(workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            for line in server.stdout or ():
                if found := re.match(r"at http://127.0.0.1:(\d+);", line):
                    yield server, int(found[1])
                    break
        finally:
            if server.poll() is None:
                server.kill()


def run(folder: Path, seconds: float, workers: int) -> Report:
    """Models, what is expected of them, and the load."""
    from unit.serve.served import make_folders

    folders, texts = make_folders(folder), make_texts()
    wanted = run_commands(folders, texts, folder)
    with serving(folders, workers) as (server, port):
        return asyncio.run(soak(server, port, seconds, texts, wanted))


def describe(seen: Report, minutes: float, workers: int) -> list[str]:
    """A row of the table."""
    return [
        str(workers),
        f"{minutes:g}",
        f"{sum(seen.answers.values()):,}",
        f"{seen.refused:,}",
        f"{seen.left:,}",
        str(len(seen.wrong)),
        f"{100 * (seen.growth - 1):+.1f}%",
        str(seen.backlog),
        f"{seen.drained[200]} of {sum(seen.drained.values())}",
    ]


def find_faults(seen: Report) -> list[str]:
    """What should not be, besides wrong answers."""
    faults = {
        f"memory has grown by {100 * (seen.growth - 1):.1f}%": seen.growth > 1 + MOST,
        f"{seen.backlog} lines of clients who left are still there": seen.backlog != 0,
        f"of 100 in flight at SIGTERM, {seen.drained[200]} were answered": seen.drained != Counter({200: 100}),
        f"the server ended with {seen.code}": seen.code != 0,
    }
    return [fault for fault, found in faults.items() if found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="of each server")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="of the servers, one after the other")
    parser.add_argument("--write", action="store_true", help="renew the section of docs/reliability.md")
    options = parser.parse_args()
    rows, wrong = [], []
    for workers in options.workers:
        with tempfile.TemporaryDirectory() as folder:
            seen = run(Path(folder), 60 * options.minutes, workers)
        rows.append(describe(seen, options.minutes, workers))
        wrong += [*seen.wrong, *find_faults(seen)]
        print(dict(seen.answers), seen.drained, f"exit code {seen.code}", *seen.wrong[:10], sep="\n")
    text = "\n\n".join(
        [
            f"## A server, left alone with {CLIENTS} clients\n\nFive tasks, seven dialects; memory is that of the last "
            "half beside that of the second quarter; 1,000 clients then leave, and SIGTERM comes with 100 in flight.",
            draw_table(
                [
                    *(
                        "workers",
                        "minutes",
                        "answers, all as by the command",
                        "malformed, refused",
                        "left early",
                        "wrong, lost or 5xx",
                    ),
                    *(f"memory (≤ +{100 * MOST:.0f}%)", "backlog of who left", "answered after SIGTERM"),
                ],
                rows,
            ),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/soak.py", text, RELIABILITY)
    if wrong:
        raise SystemExit("\n".join(wrong[:10]))


if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    main()
