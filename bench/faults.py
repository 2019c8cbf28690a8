"""Fault injection: trainings are killed, their files damaged, their disks filled; each must end as an undisturbed one.

make faults        200 kills (40 of them in a save, 20 by SIGTERM), 1,000 flipped bits, 50 full disks, and bulk jobs
                   that are killed; writes its sections of docs/reliability.md

A flipped bit may hit any file of a run. A model then answers as before or is refused with a sentence, and a training
that is resumed ends with the same bits or is refused with a sentence.
"""

import argparse
import filecmp
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results import RELIABILITY, draw_table, write_section
from rich.console import Console

import seqloom
from seqloom import files
from seqloom.cli.main import run as run_command
from seqloom.errors import SeqloomError
from seqloom.runs import checkpoint
from seqloom.runs.verify import verify
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

CONFIG = """
task = "{task}"
tokenizer = {{kind = "characters"}}
data.checks.duplicate = "off"
data.checks.overlap = "off"
[data.train]
{train}
[data.valid]
{valid}
[batch]
tokens = 160
{rows}
[model.{side}]
family = "{family}"
num_layers = 1
model_dim = 16
dropout = 0.2
[train]
steps = 30
warmup = 3
validate_every = 7
save_every = 3
threads = 1
"""
DATA = {
    "translation": 'source = "{}.txt"\ntarget = "{}.target"',
    "classification": 'files = "{}.tsv"',
    "tagging": 'files = "{}.conll"',
}
VERBS: dict[str, Callable[[Any], Any]] = {
    "translation": lambda model: model.translate(["the cat sees", "a dog"], max_length=9),
    "language-model": lambda model: model.generate(["the cat"], max_length=9),
    "masked-language-model": lambda model: model.fill(["the [MASK] sees"]),
    "bidirectional-language-model": lambda model: model.embed(["the cat"]).tolist(),
    "classification": lambda model: model.classify(["the cat sees"]),
    "tagging": lambda model: model.tag(["the cat sees"]),
}


@dataclass
class Scenario:
    """A training with something special about it."""

    name: str
    task: str
    family: str
    overrides: tuple[str, ...] = ()
    processes: int = 1
    exact: bool = True
    """Whether two undisturbed trainings are the same: not where the schedule follows the clock."""
    ends: Counter[str] = field(default_factory=Counter)


SCENARIOS = [
    Scenario("running average of the weights", "translation", "transformer", ("train.ema=0.9",)),
    Scenario("average of checkpoints", "tagging", "recurrent", ("train.average=3",)),
    Scenario("accumulation", "language-model", "convolutional", ("train.accumulate=3",)),
    Scenario("float16", "masked-language-model", "transformer", ("train.precision=float16",)),
    Scenario("two directions", "bidirectional-language-model", "recurrent"),
    Scenario("adapters", "classification", "transformer", ("init=base", "train.adapters.rank=2")),
    Scenario("attention over a recurrent encoder", "translation", "recurrent", ("train.average=2", "train.ema=0.5")),
    Scenario("two processes", "tagging", "transformer", ("train.average=2",), processes=2),
    Scenario("two processes, divided weights", "translation", "transformer", ("train.sharding=full",), processes=2),
    Scenario("a budget of minutes", "language-model", "transformer", ("train.minutes=0.04",), exact=False),
]


def write_configuration(folder: Path, scenario: Scenario) -> Path:
    """The configuration file of a scenario."""
    data = DATA.get(scenario.task, 'files = "{}.txt"')
    text = "language-model" in scenario.task
    content = CONFIG.format(
        task=scenario.task,
        train=data.format("train", "train"),
        valid=data.format("valid", "valid"),
        rows='rows = {kind = "lines", max_length = 40}' if text else "max_length = 80",
        side="decoder" if scenario.task == "language-model" else "encoder",
        family=scenario.family,
    )
    if scenario.task == "translation":
        content = content.replace(
            "[train]\n", f'[model.decoder]\nfamily = "{scenario.family}"\nnum_layers = 1\nmodel_dim = 16\n[train]\n'
        )
    if not scenario.exact:
        content = content.replace("steps = 30\n", "")
    path = folder / f"{scenario.task}-{scenario.family}-{'steps' if scenario.exact else 'minutes'}.toml"
    path.write_text(content, encoding="utf-8")
    return path


def train_here(path: Path, out: Path, scenario: Scenario) -> None:
    train(path, scenario.overrides, out=out, monitor=PlainMonitor(Console(quiet=True)))


def start(path: Path, out: Path, scenario: Scenario, *, die_in_file: int = -1) -> list[int]:
    """Train in processes of their own; with `die_in_file`, the first is killed while it writes that file of the run."""
    from together import free_port  # type: ignore[import-not-found]

    port, children = free_port(), []
    for rank in range(scenario.processes):
        child = os.fork()
        if child:
            children.append(child)
            continue
        try:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
            if scenario.processes > 1:
                place = {"RANK": rank, "WORLD_SIZE": scenario.processes, "LOCAL_RANK": rank, "MASTER_PORT": port}
                place |= {"LOCAL_WORLD_SIZE": scenario.processes, "MASTER_ADDR": "127.0.0.1"}
                os.environ |= {name: str(value) for name, value in place.items()}
            if die_in_file >= 0 and rank == 0:
                _die_in_file(die_in_file)
            quiet = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(quiet, number)
            sys.argv = ["seqloom", "train", str(path), "--out", str(out), *scenario.overrides]
            run_command()
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 0)
        finally:
            os._exit(70)
    return children


def _die_in_file(number: int) -> None:
    """Kill this process when half of a file is written."""
    left = [number]

    def write_half(path: Path, content: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            path.write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        written(path, content)

    written = files.write_flushed
    files.write_flushed = checkpoint.write_flushed = write_half


def kill_again_and_again(
    path: Path, out: Path, scenario: Scenario, kinds: Sequence[str], seconds: float, rng: random.Random
) -> None:
    """Disturb a training by each of `kinds` in turn, then let it end; what it is too fast for is tried again."""
    left = list(kinds)
    while True:
        kind = left[0] if left else ""
        children = start(path, out, scenario, die_in_file=rng.randrange(1, 25) if kind == "save" else -1)
        timer = None
        if kind in ("kill", "term"):
            number = signal.SIGKILL if kind == "kill" else signal.SIGTERM
            timer = threading.Timer(rng.uniform(0.1, 0.9) * seconds, _signal, (children, number))
            timer.start()
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if timer is not None:
            timer.cancel()
        if any(code in (-9, 128 + signal.SIGTERM, -signal.SIGTERM) for code in codes):
            scenario.ends[kind] += 1
            left.pop(0)
        elif any(codes):
            scenario.ends["failed"] += 1
            return
        elif not left:
            return
        else:
            shutil.rmtree(out)  # it had ended before: start over with what is left


def _signal(children: Sequence[int], number: int) -> None:
    for child in children[:1] if number == signal.SIGKILL else children:
        os.kill(child, number)


def judge(whole: Path, broken: Path, scenario: Scenario) -> str:
    """Whether the disturbed training ended as it should."""
    if scenario.ends["failed"]:
        return "FAILED"
    faults = [verdict for verdict in verify(broken) if verdict.fault]
    answer = VERBS[scenario.task]
    if faults or not answer(seqloom.load(broken)):
        return f"DAMAGED: {faults}"
    if not scenario.exact:
        return "finished, loaded and answered"
    names = ["model.safetensors", "log.jsonl", "checkpoints/step-00000030/optimizer.safetensors"]
    names += [str(path.relative_to(whole)) for path in whole.glob("snapshots/*/model.safetensors")]
    same = all((broken / name).exists() and filecmp.cmp(whole / name, broken / name, shallow=False) for name in names)
    partial = list(broken.rglob("*.partial"))
    if partial:
        return f"LEFT BEHIND: {partial[0].name}"
    return "bit-identical to the undisturbed training" if same else "DIFFERENT"


def run_kills(folder: Path, kills: int, saves: int, terms: int, rng: random.Random) -> list[list[str]]:
    """Every scenario with its share of the kills."""
    rows = []
    kinds = ["kill"] * (kills - saves - terms) + ["save"] * saves + ["term"] * terms
    for number, scenario in enumerate(SCENARIOS):
        path = write_configuration(folder, scenario)
        if "init=base" in scenario.overrides and not (folder / "base").exists():
            train_here(path, folder / "base", Scenario("", scenario.task, scenario.family))
        mine = kinds[number :: len(SCENARIOS)]
        rng.shuffle(mine)
        whole, broken = folder / f"whole-{number}", folder / f"broken-{number}"
        began = time.perf_counter()
        for child in start(path, whole, scenario):
            os.waitpid(child, 0)
        seconds = time.perf_counter() - began
        kill_again_and_again(path, broken, scenario, mine, seconds, rng)
        ends = scenario.ends
        counts = f"{ends['kill']} at any moment, {ends['save']} in a save, {ends['term']} by SIGTERM"
        rows.append([scenario.name, f"{scenario.task}, {scenario.family}", counts, judge(whole, broken, scenario)])
        print(rows[-1], flush=True)
    return rows


def flip_bits(folder: Path, count: int, rng: random.Random) -> list[list[str]]:
    """Flip a bit of any file of a run: half of them of a finished run, which is used, half of one that is resumed."""
    rows = []
    for number, (finished, scenario) in enumerate(((True, SCENARIOS[0]), (False, SCENARIOS[1]))):
        path = write_configuration(folder, scenario)
        whole, run = folder / f"flips-{number}", folder / f"flipped-{number}"
        if finished:
            train_here(path, whole, scenario)
        else:
            (child,) = start(path, whole, scenario, die_in_file=18)
            os.waitpid(child, 0)
        undisturbed = folder / f"flips-{number}-end"
        shutil.copytree(whole, undisturbed)
        train_here(path, undisturbed, scenario)
        answer = VERBS[scenario.task]
        wanted = repr(answer(seqloom.load(undisturbed)))
        everything = sorted(file for file in whole.rglob("*") if file.is_file() and file.stat().st_size)
        ends: Counter[str] = Counter()
        for _ in range(count // 2):
            file = rng.choice(everything)
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(whole, run)
            _flip(run / file.relative_to(whole), rng)
            try:
                if not finished:
                    train_here(path, run, scenario)
                    weights = (run / "model.safetensors").read_bytes()
                    if weights != (undisturbed / "model.safetensors").read_bytes():
                        ends["OTHER WEIGHTS"] += 1
                        print(f"other weights after a flip in {file.relative_to(whole)}", flush=True)
                        continue
                ends["the same answer" if repr(answer(seqloom.load(run))) == wanted else "ANOTHER ANSWER"] += 1
            except SeqloomError:
                ends["a sentence"] += 1
            except Exception as error:
                ends["TRACEBACK"] += 1
                print(f"{type(error).__name__} after a flip in {file.relative_to(whole)}: {error}", flush=True)
        what = "used" if finished else "resumed and used"
        outcome = ", ".join(f"{name}: {number}" for name, number in sorted(ends.items()))
        rows.append([f"a bit of any of {len(everything)} files, then {what}", str(count // 2), outcome])
        print(rows[-1], flush=True)
    return rows


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def fill_disks(folder: Path, count: int, rng: random.Random) -> list[list[str]]:
    """Train on disks that are too small, then give them room. Needs the right to mount."""
    disk, ends = folder / "disk", Counter[str]()
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o"]
    if subprocess.run([*mount, "size=64k", "seqloom", disk], check=False, capture_output=True).returncode:
        return [["a full disk", "0", "not tried: a small disk needs the right to mount one"]]
    subprocess.run(["umount", "-l", disk], check=True)
    for number in range(count):
        scenario = SCENARIOS[number % 7]
        path = write_configuration(folder, scenario)
        whole = folder / f"whole-{number % 7}"
        subprocess.run([*mount, f"size={rng.randrange(16, 400)}k", "seqloom", disk], check=True)
        try:
            try:
                train_here(path, disk / "run", scenario)
                first = "no fault"
            except SeqloomError:
                first = "a sentence"
            except Exception as error:
                first = "TRACEBACK"
                print(f"{type(error).__name__} on a full disk: {error}", flush=True)
            subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
            train_here(path, disk / "run", scenario)
            same = (disk / "run" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
            ends[f"{first}, then {'the same bits' if same else 'OTHER BITS'}"] += 1
        finally:
            subprocess.run(["umount", "-l", disk], check=True)
    outcome = ", ".join(f"{name}: {number}" for name, number in sorted(ends.items()))
    return [["a disk that is full, then larger", str(count), outcome]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--saves", type=int, default=40, help="how many of the kills are in a save")
    parser.add_argument("--terms", type=int, default=20, help="how many of them are SIGTERM")
    parser.add_argument("--flips", type=int, default=1_000)
    parser.add_argument("--disks", type=int, default=50)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/reliability.md")
    options = parser.parse_args()
    rng = random.Random(11)
    from fuzzing.corpora import write_corpora  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory(prefix="seqloom-faults-") as name:
        folder = Path(name)
        write_corpora(folder)
        kills = run_kills(folder, options.kills, options.saves, options.terms, rng)
        damage = [*flip_bits(folder, options.flips, rng), *fill_disks(folder, options.disks, rng)]
    first = draw_table(["training", "task and family", "killed", "in the end"], kills)
    second = draw_table(["fault", "how often", "outcome"], damage)
    print(f"{first}\n\n{second}")
    if options.write:
        write_section("bench/faults.py", f"## Faults\n\n{first}\n\n{second}", RELIABILITY)
    bad = ("FAILED", "DAMAGED", "DIFFERENT", "LEFT BEHIND", "OTHER", "ANOTHER", "TRACEBACK")
    sys.exit(any(word in row[-1] for row in [*kills, *damage] for word in bad))


if __name__ == "__main__":
    main()
