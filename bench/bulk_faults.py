"""A bulk job with broken lines that is killed again and again, beside one that nobody disturbs.

python bench/bulk_faults.py --write      100,000 lines, 1% of them broken, five kills; for each of four verbs
python bench/bulk_faults.py --short      2,500 lines, two kills, one verb: a few seconds
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import RELIABILITY, draw_table, write_section
from rich.console import Console

from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor

NOUNS = ("cat", "dog", "bird", "fish", "horse", "mouse", "sheep", "goat")
VERBS = ("sees", "hears", "likes", "finds")
BROKEN = (b"\xff\xfe\x00u\x00t\x00f", b"caf\xe9", b"nul \x00 nul", b"\xed\xa0\x80 surrogate") * 12 + (
    b"x" * ((1 << 20) + 1),
)
CONFIG = """
task = "{task}"
tokenizer = {{kind = "words", min_frequency = 1}}
data.checks.duplicate = "off"
[data.train]
{data}
[batch]
tokens = 512
[model.encoder]
family = "recurrent"
num_layers = 1
model_dim = 32
[train]
steps = 60
warmup = 5
threads = 1
optimizer.learning_rate = 0.01
"""
TASKS = {
    "tagging": 'format = "parallel"\nwords = "train.txt"\ntags = "train.tags"',
    "translation": 'source = "train.txt"\ntarget = "train.upper"',
}
JOBS = (
    ("tag", "tagging", "jsonl", ("--json",)),
    ("embed", "tagging", "npy", ()),
    ("translate", "translation", "txt", ()),
    ("translate", "translation", "jsonl", ("--json", "--sample", "--seed", "7")),
)


def write_sentence(rng: random.Random) -> str:
    return f"{rng.choice(('the', 'a'))} {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} ."


def train_models(folder: Path, tasks: set[str]) -> None:
    rng = random.Random(1)
    lines = [write_sentence(rng) for _ in range(400)]
    for ending, change in (("txt", str), ("upper", str.upper), ("tags", lambda line: " ".join("X" * 6))):
        (folder / f"train.{ending}").write_text("".join(f"{change(line)}\n" for line in lines), encoding="utf-8")
    for task in sorted(tasks):
        config = folder / f"{task}.toml"
        config.write_text(CONFIG.format(task=task, data=TASKS[task]), encoding="utf-8")
        train(config, out=folder / task, monitor=PlainMonitor(Console(quiet=True)))


def write_input(path: Path, count: int) -> set[int]:
    """Lines, some blank, some far too long for the model, one in a hundred broken; returns the numbers of these."""
    rng = random.Random(2)
    broken = set(rng.sample(range(1, count + 1), count // 100))
    with path.open("wb") as file:
        for number in range(1, count + 1):
            good = "" if rng.random() < 0.01 else " ".join(write_sentence(rng) for _ in range(rng.choice((1, 1, 2, 4))))
            file.write((rng.choice(BROKEN) if number in broken else good.encode()) + b"\n")
    return broken


def run_with_kills(command: list[str], output: Path, kills: int, seconds: float, rng: random.Random) -> int:
    """Resume until the job is done; returns how many kills hit it. `seconds` is how long an unbroken one takes."""
    hit = 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=rng.uniform(0.1, 1.5) * seconds / (kills + 1) + 2.0 if hit < kills else None)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            hit += 1
            continue
        if hit >= kills:
            return hit
        for name in (output, output.with_name(output.name + ".progress")):  # faster than the kills: start over
            name.unlink(missing_ok=True)
        hit, seconds = 0, seconds * 0.7


def find_marked(output: Path) -> tuple[int, set[int]]:
    """How many lines an output has, and which of them are marked as failed."""
    if output.suffix == ".npy":
        import numpy as np

        rows = np.load(output)
        return len(rows), {int(row) + 1 for row in np.flatnonzero(np.isnan(rows).all(1))}
    marked, count = set(), 0
    with output.open(encoding="utf-8", newline="\n") as file:
        for count, line in enumerate(file, start=1):
            failed = "error" in json.loads(line) if output.suffix == ".jsonl" else line.startswith("[failed: ")
            marked |= {count} if failed else set()
    return count, marked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="the first verb on few lines")
    parser.add_argument("--write", action="store_true", help="put the table into docs/reliability.md")
    options = parser.parse_args()
    lines, kills, jobs = (2_500, 2, JOBS[:1]) if options.short else (options.lines, options.kills, JOBS)
    rng, rows, fine = random.Random(3), [], True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train_models(folder, {task for _, task, _, _ in jobs})
        broken = write_input(folder / "in.txt", lines)
        for verb, task, ending, extra in jobs:
            whole, killed = (folder / f"{state}-{verb}{len(rows)}.{ending}" for state in ("whole", "killed"))
            command = [sys.executable, "-m", "seqloom", verb, str(folder / task), str(folder / "in.txt"), *extra, "-o"]
            started = time.perf_counter()
            code = subprocess.run([*command, str(whole)], stderr=subprocess.DEVNULL, check=False).returncode
            seconds = time.perf_counter() - started
            hit = run_with_kills([*command, str(killed), "--resume"], killed, kills, seconds, rng)
            count, marked = find_marked(killed)
            equal = killed.read_bytes() == whole.read_bytes()
            fine &= equal and code == 1 and count == lines and marked == broken
            rows.append(
                [
                    " ".join((verb, *extra, f"-o .{ending}")),
                    f"{hit}",
                    f"{count:,} of {lines:,}",
                    f"{len(marked & broken):,} of {len(broken):,}"
                    + (f", {len(marked - broken)} others" * (marked > broken)),
                    "identical to the unbroken job" if equal else "DIFFERENT",
                    f"{seconds:.0f} s",
                ]
            )
            print(rows[-1], flush=True)
    table = draw_table(["job", "kill -9", "lines out", "broken lines marked", "bytes", "an unbroken job"], rows)
    print(table)
    if options.write:
        write_section("bench/bulk_faults.py", f"## Bulk jobs, killed\n\n{table}", RELIABILITY)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
