"""Contenders that each need a process of their own, taking turns: runtimes do not share threads, or what they wait for.

The parent names a case; the child prepares it once, runs it for a turn and answers with what it measured.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict

from results import draw_table
from timing import Timing, Turn, judge, keep_clean, take_turn


class Engine:
    """A process of this program with `--engine NAME`.

    `waiting` is how threads wait for each other: PASSIVE is asleep, ACTIVE is awake, and BRIEF is awake for a moment,
    as in the `seqloom` command.
    """

    def __init__(self, name: str, threads: int, *more: str, waiting: str | None = None) -> None:
        command = [sys.executable, sys.argv[0], "--engine", name, "--threads", str(threads), *more]
        # CTranslate2 with two threads is many times slower at batch 1 unless they wait for each other actively.
        waiting = waiting or ("ACTIVE" if threads > 1 else "PASSIVE")
        ways = {"GOMP_SPINCOUNT": "10000"} if waiting == "BRIEF" else {"OMP_WAIT_POLICY": waiting}
        given = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        given |= {"OMP_NUM_THREADS": str(threads)} | ways
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=given)

    def run(self, case: str) -> Turn:
        """One turn."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{case}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        self.process.send_signal(signal.SIGSTOP)  # or its threads would go on waiting, actively, in others' turns
        if not answer:
            raise SystemExit(f"{self.process.args} ended without an answer")
        return Turn(**json.loads(answer))

    def close(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def serve(prepare: Callable[[str], Callable[[], object]], turn: float) -> None:
    """The child: cases in, turns out."""
    prepared: dict[str, Callable[[], object]] = {}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    for line in sys.stdin:
        case = line.strip()
        if case not in prepared:
            prepared[case] = prepare(case)
        prepared[case]()  # while others had their turn, caches and memory were theirs
        answers.write(json.dumps(asdict(take_turn(prepared[case], turn))) + "\n")
        answers.flush()


def interleave_engines(engines: dict[str, Engine], case: str, *, rounds: int, patience: int = 3) -> dict[str, Timing]:
    """Rounds of turns; more of them where all of an engine's were disturbed."""
    turns: dict[str, list[Turn]] = {name: [] for name in engines}
    for done in range(1, rounds * patience + 1):
        for name, engine in engines.items():
            turns[name].append(engine.run(case))
        if done >= rounds and all(keep_clean(taken) for taken in turns.values()):
            break
    return judge(turns)


def compare_speeds(
    engines: dict[str, Engine], batches: dict[str, int], promised: dict[str, float], *, length: int, rounds: int
) -> str:
    """A table of tokens a second: a row a case, whose batch makes `length` tokens a line."""
    rows = []
    for case, batch in batches.items():
        times = interleave_engines(engines, case, rounds=rounds)
        speeds = {name: batch * length / time.seconds for name, time in times.items()}
        unit = "" if all(time.clean for time in times.values()) else " of CPU"
        ratio = f"{speeds['Seqloom'] / speeds['Hugging Face']:.2f} (≥ {promised[case]})"
        foreign = max(time.foreign for time in times.values())
        rows.append([case, *(f"{speed:,.0f}{unit}" for speed in speeds.values()), ratio, f"{foreign:.0%}"])
        print(*rows[-1], sep="  ", flush=True)
    for engine in engines.values():
        engine.close()
    return draw_table(["case", *engines, "Seqloom / Hugging Face", "CPU used by others"], rows)


def is_installed(name: str) -> bool:
    """Whether a peer is there to be compared with."""
    return importlib.util.find_spec(name) is not None
