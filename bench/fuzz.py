"""Random configurations of every task and family, each checked, trained, killed, resumed, loaded, used and exported.

make fuzz            2,000 of them; writes its section of docs/reliability.md
make fuzz N=200      the first 200

Each outcome is a line of build/fuzz.jsonl. An interrupted campaign goes on where it was; remove the file to start anew.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from results import RELIABILITY, draw_table, write_section
from rich.progress import track

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
FAULTS = ("traceback", "hang", "not finite", "difference")


def try_one(seed: int, folder: Path) -> dict[str, object]:
    """The outcome of one configuration."""
    import torch

    from fuzzing.trial import try_configuration

    torch.set_num_threads(1)
    return asdict(try_configuration(seed, folder / "corpora", folder / f"trial-{seed}"))


def try_all(seeds: list[int], folder: Path, workers: int) -> Iterator[dict[str, object]]:
    """Outcomes in the order in which they are known. A process tries 50 and makes room for a new one."""
    with get_context("spawn").Pool(workers, maxtasksperchild=50) as pool:
        waiting = [pool.apply_async(try_one, (seed, folder)) for seed in seeds]
        for outcome in waiting:
            yield outcome.get()


def tabulate(outcomes: list[dict[str, object]]) -> str:
    """How the configurations of each task ended."""
    rows = []
    tasks = sorted({str(outcome["task"]) for outcome in outcomes})
    for task in [*tasks, "all"]:
        mine = [outcome for outcome in outcomes if task in (outcome["task"], "all")]
        ends = Counter(str(outcome["kind"]) for outcome in mine)
        families = len({outcome["family"] for outcome in mine})
        rows.append(
            [task, f"{len(mine):,}", str(families), f"{ends['ok']:,}", f"{ends['refused']:,}"]
            + [f"{ends[fault]:,}" for fault in FAULTS]
        )
    return draw_table(["task", "configurations", "families", "all went well", "refused with a sentence", *FAULTS], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2_000, help="how many configurations")
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "fuzz.jsonl", help="where outcomes are kept")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="put the table into docs/reliability.md")
    options = parser.parse_args()
    options.log.parent.mkdir(exist_ok=True)
    lines = options.log.read_text(encoding="utf-8").splitlines() if options.log.exists() else []
    done = {entry["seed"]: entry for entry in map(json.loads, lines)}
    left = [seed for seed in range(options.count) if seed not in done]
    from fuzzing.corpora import write_corpora

    with tempfile.TemporaryDirectory(prefix="seqloom-fuzz-") as name, options.log.open("a", encoding="utf-8") as log:
        write_corpora(Path(name) / "corpora")
        for outcome in track(try_all(left, Path(name), options.workers), "configurations", total=len(left)):
            log.write(json.dumps(outcome, ensure_ascii=False) + "\n")
            log.flush()
            done[outcome["seed"]] = outcome
            if outcome["kind"] in FAULTS:
                print(f"{outcome['kind']} of seed {outcome['seed']} at {outcome['stage']}: {outcome['detail']}")
    outcomes = [entry for seed, entry in sorted(done.items()) if seed < options.count]
    table = tabulate(outcomes)
    print(table)
    if options.write:
        write_section("bench/fuzz.py", f"## Random configurations\n\n{table}", RELIABILITY)
    sys.exit(any(outcome["kind"] in FAULTS for outcome in outcomes))


if __name__ == "__main__":
    main()
