"""What a budget buys: `python bench/budgets.py DATA [--only CELL ...] [--write]`

DATA is a folder with `multi30k` and `tatoeba`. A cell is a number of pairs and a number of minutes: a model with the
default configuration, which is given nothing but its files and `train.minutes`, is trained and tested. Up to 29,000
pairs are the first ones of Multi30k, with its validation and test data; more are of Tatoeba, of which every 50th pair
is held out, half of those to validate on and half to test on. A finished cell is only read; an interrupted one goes
on. `--set batch.tokens=1024 ...` tries other settings, and `--set train.steps=250` steps instead of minutes, on a busy
machine; their folders have other names, and nothing is written."""

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path

import multi30k
from labelling import write_lines
from results import draw_table, write_section

from seqloom.data.shards import Records

SEQLOOM = [sys.executable, "-m", "seqloom"]
RECORDS = (500, 3_000, 29_000, 160_000)
MINUTES = (2, 10, 60)
CELLS = {f"{records}-{minutes}": (records, minutes) for records in RECORDS for minutes in MINUTES}
"""Cells by name."""
Pairs = list[tuple[str, str]]


def read_pairs(path: Path) -> Pairs:
    """German beside English."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        columns = [line.rstrip("\n").split("\t") for line in file]
    return [(german, english) for english, german, *_ in columns]


def lay_down(data: Path, folder: Path, records: int) -> Path:
    """A folder with the texts of a number of pairs."""
    texts = folder / f"pairs-{records}"
    texts.mkdir(parents=True, exist_ok=True)
    if records <= 29_000:
        for split, name in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr")):
            for language in ("de", "en"):
                lines = (
                    gzip.decompress((data / "multi30k" / f"{name}.{language}.gz").read_bytes()).decode().splitlines()
                )
                write_lines(texts / f"{split}.{language}", lines[:records] if split == "train" else lines)
        return texts
    pairs = read_pairs(data / "tatoeba" / "eng-deu.tsv.gz")
    held = pairs[::50]
    known = {side for pair in held for side in pair}  # Tatoeba has many translations of one sentence
    train = [pair for pair in pairs if not known & {*pair}][:records]
    for split, chosen in (("train", train), ("valid", held[::2][:1000]), ("test", held[1::2][:1000])):
        for language, texts_of in zip(("de", "en"), zip(*chosen, strict=True), strict=True):
            write_lines(texts / f"{split}.{language}", texts_of)
    return texts


def train(cell: str, data: Path, folder: Path, settings: list[str]) -> Path:
    """Train a cell, unless it is finished."""
    records, minutes = CELLS[cell]
    texts = lay_down(data, folder, records)
    run = folder / "-".join([cell, *settings])
    config = texts / "translation.toml"
    if not config.exists():
        subprocess.run([*SEQLOOM, "new", "translation", "-o", str(config)], check=True)
    if not (run / "manifest.json").exists():
        stepped = any(setting.startswith("train.steps=") for setting in settings)
        budget = [] if stepped else [f"train.minutes={minutes}.0"]
        files = [*multi30k.name_files("de", "en"), "data.test=[]"]
        checks = ["data.checks.overlap=off", "data.checks.duplicate=off"]
        command = [*SEQLOOM, "train", str(config), *files, *checks, *budget, *settings, "--out", str(run)]
        subprocess.run(command, check=True)
    return run


def evaluate(run: Path, texts: Path, split: str) -> str:
    """BLEU and its interval, on all sentences."""
    kept = run / f"{split}.json"
    if not kept.exists():
        files = [str(texts / f"{split}.{language}") for language in ("de", "en")]
        command = [*SEQLOOM, "eval", str(run), "--data", *files, "--metric", "bleu", "--json"]
        kept.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    bleu = json.loads(kept.read_bytes())["metrics"][0]
    return f"{bleu['value']:.1f} ({bleu['low']:.1f} to {bleu['high']:.1f})"


def describe(cell: str, run: Path, folder: Path) -> list[str]:
    """A line of the table."""
    records, minutes = CELLS[cell]
    texts = folder / f"pairs-{records}"
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "rate" in line]
    judged = [line for line in lines if "valid" in line]
    best = min(judged, key=lambda line: line["valid"]["loss"])
    targets = Records(sorted((run / "data").glob("train-*"))).measure("target")
    epochs = sum(line["count"] for line in steps) / (targets.sum() + len(targets))  # each has a token that ends it
    rising = next((line["step"] for line in steps if line["rate"] >= 0.999), len(steps))
    return [
        f"{records:,}",
        f"{minutes}",
        evaluate(run, texts, "valid"),
        evaluate(run, texts, "test"),
        f"{len(steps):,}",
        f"{rising:,}",
        f"{epochs:.1f}",
        f"{len(judged)}",
        f"{best['step']:,}",
    ]


def main() -> None:
    """Train, test and tabulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/budgets"), help="where the texts and the runs go")
    parser.add_argument("--only", nargs="*", choices=CELLS, default=list(CELLS), help="the cells to train")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="other settings to try")
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    for cell in options.only:
        run = train(cell, options.data, options.out, options.set)
        print(*describe(cell, run, options.out), sep="\t", flush=True)
    finished = {cell: options.out / cell for cell in CELLS if (options.out / cell / "manifest.json").exists()}
    head = ["pairs", "minutes", "BLEU, valid", "BLEU, test", "steps", "warm-up", "epochs"]
    head += ["validations", "best step"]
    table = draw_table(head, [describe(cell, run, options.out) for cell, run in finished.items()])
    text = (
        "## What a budget buys\n\nTranslation, German to English, with the default configuration: only the files and "
        "`train.minutes` are given. Up to 29,000 pairs are of Multi30k, more of Tatoeba, each with its own validation "
        f"and test data; seed 1, all cores. BLEU is of all sentences, greedy, with its 95% interval.\n\n{table}"
    )
    print(text)
    if options.write and not options.set and finished:
        write_section("bench/budgets.py", text)


if __name__ == "__main__":
    main()
