"""Fault injection: kill a training at random moments, damage its checkpoints, and compare with an unbroken run.

make faults        50 kills (10 of them inside a save), 200 flipped bits, 50 cuts; writes its section of docs/results.md
"""

import argparse
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

from results import draw_table, write_section
from rich.console import Console

from seqloom.errors import RunError
from seqloom.runs import checkpoint as checkpoints
from seqloom.runs.checkpoint import load_checkpoint
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor

CONFIG = """
task = "tagging"
tokenizer = "characters"
[data.train]
format = "conll"
files = "train.conll"
[data.valid]
format = "conll"
files = "valid.conll"
[data.checks]
duplicate = "off"
overlap = "off"
[batch]
tokens = 512
[model.encoder]
family = "{family}"
num_layers = 1
model_dim = 32
[train]
steps = 120
validate_every = 40
save_every = 5
threads = 1
"""


def write_corpus(folder: Path) -> None:
    rng = random.Random(3)
    for split, count in (("train", 300), ("valid", 40)):
        sentences = []
        for _ in range(count):
            words = [
                rng.choice(("red", "blue", "old", "new", "house", "river", "bird")) for _ in range(rng.randint(2, 9))
            ]
            tags = ["NOUN" if word in ("house", "river", "bird") else "ADJ" for word in words]
            sentences.append("\n".join(f"{word} {tag}" for word, tag in zip(words, tags, strict=True)) + "\n")
        (folder / f"{split}.conll").write_text("\n".join(sentences), encoding="utf-8")


def start_child(config: Path, out: Path, *, die_in_save: int | None = None) -> int:
    """Train in a child process; with `die_in_save` it is killed while that file of a checkpoint is being written."""
    child = os.fork()
    if child:
        return child
    if die_in_save is not None:
        write, left = checkpoints.write_flushed, [die_in_save]

        def write_or_die(path: Path, content: bytes) -> None:
            left[0] -= 1
            if left[0] < 0:
                path.write_bytes(content[: len(content) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            write(path, content)

        checkpoints.write_flushed = write_or_die
    try:
        train(config, out=out, monitor=PlainMonitor(Console(quiet=True)))
    finally:
        os._exit(0)


def run_with_kills(config: Path, out: Path, kills: int, saves: int, rng: random.Random) -> tuple[int, int]:
    """Restart until the training is finished; returns how many kills hit it at random moments and inside a save."""
    hit, inside = 0, 0
    while True:
        die = rng.randrange(4, 20) if inside < saves else None
        child = start_child(config, out, die_in_save=die)
        timer = None
        if die is None and hit < kills:
            timer = threading.Timer(rng.uniform(0.3, 2.5), os.kill, (child, signal.SIGKILL))
            timer.start()
        _, status = os.waitpid(child, 0)
        if timer is not None:
            timer.cancel()
        if not os.WIFSIGNALED(status):
            if hit >= kills and inside >= saves:
                return hit, inside
            shutil.rmtree(out)  # it was faster than the kills: start over with those that are left
        elif die is None:
            hit += 1
        else:
            inside += 1


def same(one: Path, other: Path) -> bool:
    names = ["model.safetensors", "log.jsonl", "checkpoints/step-00000120/optimizer.safetensors"]
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def damage(folder: Path, flips: int, cuts: int, rng: random.Random) -> tuple[int, int]:
    """Damage one file of a checkpoint at a time; returns how many flips and cuts were found out."""
    files = sorted(folder.iterdir())
    found = [0, 0]
    for number in range(flips + cuts):
        path = rng.choice(files)
        whole = path.read_bytes()
        broken = bytearray(whole)
        kind = number >= flips
        if kind:
            del broken[rng.randrange(len(broken)) :]
        else:
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        try:
            load_checkpoint(folder)
        except RunError:
            found[kind] += 1
        path.write_bytes(whole)
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--saves", type=int, default=10)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    options = parser.parse_args()
    rng = random.Random(11)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        families = ("transformer", "recurrent", "convolutional")
        for number, family in enumerate(families):
            config = folder / f"{family}.toml"
            config.write_text(CONFIG.format(family=family), encoding="utf-8")
            started = time.perf_counter()
            train(config, out=folder / f"{family}-whole", monitor=PlainMonitor(Console(quiet=True)))
            share = [
                -(-(count - part) // len(families))
                for count, part in ((options.kills, number), (options.saves, number))
            ]
            hit, inside = run_with_kills(config, folder / f"{family}-broken", share[0], share[1], rng)
            equal = same(folder / f"{family}-whole", folder / f"{family}-broken")
            seconds = time.perf_counter() - started
            outcome = "bit-identical to the unbroken run" if equal else "DIFFERENT"
            rows.append(
                [f"kill -9, {family}", f"{hit} at random moments, {inside} in a save", outcome, f"{seconds:.0f} s"]
            )
            print(rows[-1], flush=True)
        flips, cuts = damage(
            folder / "recurrent-whole" / "checkpoints" / "step-00000120", options.flips, options.cuts, rng
        )
        rows.append(["one flipped bit in a checkpoint", f"{options.flips}", f"{flips} found out", ""])
        rows.append(["a file of a checkpoint cut short", f"{options.cuts}", f"{cuts} found out", ""])
    table = draw_table(["fault", "how often", "outcome", "time"], rows)
    print(table)
    if options.write:
        write_section("bench/faults.py", f"## Faults\n\n{table}")


if __name__ == "__main__":
    main()
