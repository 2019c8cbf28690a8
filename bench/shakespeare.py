"""How soon a language model of characters is good: `python bench/shakespeare.py DATA NANOGPT [--write]`

DATA is tiny Shakespeare (input.txt.gz), of which the last tenth is for validation; NANOGPT a folder with a copy of
github.com/karpathy/nanoGPT. Its setting for processors (4 layers, d = 128, context 64, batches of 12, 2,000 steps) runs
beside `seqloom new language-model --recipe characters`, in turns, and beside the default, which is told to read
characters and given the time of nanoGPT's. A time is of the whole command, from its start to its end, on all cores;
with `--counted` it is processor time, on one thread, for a machine that does other things as well. The loss is on the
validation text, in nats a character.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import draw_table, write_section

SEQLOOM = [sys.executable, "-m", "seqloom"]
CHARACTERS = ("tokenizer=characters", "frame.after=[]")
NANOGPT = (
    "device=cpu compile=False eval_iters=20 log_interval=100 block_size=64 batch_size=12 n_layer=4 n_head=4 n_embd=128 "
    "max_iters=2000 lr_decay_iters=2000 dropout=0.0"
)
RECIPE, DEFAULT = "Seqloom, the recipe", "Seqloom, the default"
FITTED = "Its settings were fitted by hand, on this text, for this comparison: do not expect as much elsewhere."


def time_command(command: list[str], *, counted: bool, folder: Path | None = None) -> tuple[float, str]:
    """Seconds from its start to its end, or of one processor's time, and what a command prints."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if counted else {}
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(
        command, cwd=folder, env=os.environ | threads, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    after, clock = os.times(), time.perf_counter() - started
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent if counted else clock, done.stdout.decode()


def run_nanogpt(folder: Path, *, counted: bool) -> tuple[float, float]:
    """Seconds, and the loss it ends with."""
    command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *(f"--{o}" for o in NANOGPT.split())]
    seconds, said = time_command(command, counted=counted, folder=folder)
    return seconds, float(re.findall(r"val loss ([\d.]+)", said)[-1])


def run_seqloom(config: Path, run: Path, *given: str, counted: bool) -> tuple[float, float]:
    """The same of ours."""
    threads = ["train.threads=1", "train.clock=processor"] if counted else []
    command = [*SEQLOOM, "train", str(config), "data.test=[]", *threads, *given, "--out", str(run)]
    seconds, _ = time_command(command, counted=counted)
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return seconds, next(line["valid"]["loss"] for line in reversed(lines) if "valid" in line)


def main() -> None:
    """Compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("nanogpt", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counted", action="store_true", help="processor time, on one thread each")
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    counted = options.counted
    found: dict[str, list[tuple[float, float]]] = {"nanoGPT": [], RECIPE: [], DEFAULT: []}
    with tempfile.TemporaryDirectory() as name:
        folder, theirs = Path(name), Path(name) / "nanogpt"
        text = gzip.decompress(options.data.read_bytes()).decode()
        cut = int(0.9 * len(text))
        for split, part in (("train", text[:cut]), ("valid", text[cut:])):
            (folder / f"{split}.txt").write_text(part)
        for config, recipe in (("recipe", ["--recipe", "characters"]), ("default", [])):
            new = [*SEQLOOM, "new", "language-model", *recipe, "-o", str(folder / f"{config}.toml")]
            subprocess.run(new, check=True)
        shutil.copytree(options.nanogpt, theirs)
        (theirs / "data/shakespeare_char/input.txt").write_text(text)
        subprocess.run(
            [sys.executable, "data/shakespeare_char/prepare.py"], cwd=theirs, check=True, capture_output=True
        )
        for number in range(options.rounds):
            found["nanoGPT"].append(run_nanogpt(theirs, counted=counted))
            found[RECIPE].append(run_seqloom(folder / "recipe.toml", folder / f"recipe{number}", counted=counted))
            config, budget = folder / "default.toml", f"train.minutes={found['nanoGPT'][-1][0] / 60:.2f}"
            default = run_seqloom(config, folder / f"default{number}", *CHARACTERS, budget, counted=counted)
            found[DEFAULT].append(default)
            print(number, *(runs[-1] for runs in found.values()), flush=True)
    middle = {who: [statistics.median(column) for column in zip(*runs, strict=True)] for who, runs in found.items()}
    ratio = middle["nanoGPT"][0] / middle[RECIPE][0]
    how = f"{os.cpu_count()} cores"
    if counted:
        how = (
            "one thread; the machine did other things as well, so seconds are of processor time, counted for all alike"
        )
    rows = [[who, f"{seconds:.0f} s", f"{loss:.3f}"] for who, (seconds, loss) in middle.items()]
    section = "\n\n".join(
        [
            "## Time to quality: the characters of tiny Shakespeare\n\nnanoGPT's setting for processors, and "
            "`seqloom new language-model --recipe characters`; the default is given the time of nanoGPT's. "
            f"{'One run each' if options.rounds == 1 else f'Medians of {options.rounds} runs in turns'}, {how}.",
            draw_table(["", "from start to end", "validation loss"], rows),
            f"The recipe took 1/{ratio:.1f} of the time. {FITTED}",
        ]
    )
    print(section)
    if options.write:
        write_section("bench/shakespeare.py", section)


if __name__ == "__main__":
    main()
