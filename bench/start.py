"""How long the first line takes: `python bench/start.py [RUN] [--rounds 9] [--write]`

One line through `seqloom translate`, from the shell's call to its end, beside a Python that only imports torch, without
which no model computes. They take turns. RUN is a translation model, by default one of bench/serve.py's size with
random weights. Then `seqloom serve` is started once, and each further line is a request to its socket, on a new
connection as a shell script would make it.
"""

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from results import draw_table, write_section
from serve import make_folders
from timing import interleave

SEQLOOM = [sys.executable, "-m", "seqloom"]
TEXT = " ".join(f"w{number:04d}" for number in range(12))
PROMISED = 1.3


def translate(command: list[str]) -> None:
    """One line, from the call to the end."""
    subprocess.run(command, input=f"{TEXT}\n", text=True, stdout=subprocess.DEVNULL, check=True)


@contextmanager
def serve(run: Path) -> Iterator[int]:
    """The port of a server that is ready."""
    command = [*SEQLOOM, "serve", str(run), "--port", "0", "--workers", "1"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout is not None
        found = next(filter(None, (re.search(r"http://[^:/]+:(\d+)", line) for line in server.stdout)))
        yield int(found[1])
    finally:
        server.terminate()
        server.wait()


def ask(port: int, options: dict[str, int]) -> float:
    """Seconds until the answer to one line is there."""
    started = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    asked = json.dumps({"texts": TEXT, **options})
    connection.request("POST", "/seqloom/v1/translate", asked, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    told = answer.read()
    if answer.status != 200:
        raise SystemExit(f"the server answered {answer.status}: {told.decode()}")
    connection.close()
    return time.perf_counter() - started


def main() -> None:
    """Measure it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or make_folders(Path(folder))["translation"]
        asked = {} if options.run else {"max_length": 25}
        given = [word for key, value in asked.items() for word in (f"--{key.replace('_', '-')}", str(value))]
        commands = {
            "`import torch`": [sys.executable, "-c", "import torch"],
            "`seqloom translate`": [*SEQLOOM, "translate", str(run), *given],
            "`seqloom translate --precision int8`": [*SEQLOOM, "translate", str(run), *given, "--precision", "int8"],
        }
        calls = {name: (lambda command=command: translate(command)) for name, command in commands.items()}
        times = interleave(calls, rounds=options.rounds, turn=0.0)
        with serve(run) as port:
            later = statistics.median(ask(port, asked) for _ in range(20))
    least = times["`import torch`"].seconds
    rows = [
        [name, f"{time.seconds:.2f} s{'' if time.clean else ' of CPU'}", f"{time.seconds / least:.2f}"]
        for name, time in times.items()
    ]
    rows[0][2] = ""
    for row in rows[1:]:
        row[2] += f" (≤ {PROMISED})"
    rows.append(["each further line, from `seqloom serve`", f"{1000 * later:.0f} ms", f"{later / least:.3f}"])
    text = "\n\n".join(
        [
            f"## The first line\n\nOne line of text, medians of {options.rounds} rounds in turns. CPU used by others: "
            f"{max(time.foreign for time in times.values()):.0%}.",
            draw_table(["", "time", "times `import torch`"], rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/start.py", text)


if __name__ == "__main__":
    main()
