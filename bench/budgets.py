"""What a budget buys: `python bench/budgets.py DATA [--only CELL ...] [--write]`

DATA is a folder with `multi30k`, `tatoeba`, `sentence-classification`, `ud-english-ewt` and `tinyshakespeare`. A cell
is a corpus and a number of minutes: a model with the default configuration, which is given nothing but its files and
`train.minutes`, is trained and tested. Of Multi30k the first pairs are taken; of Tatoeba, every 50th pair is held out,
half of those to validate on and half to test on. Cells with `former` in their name have the settings that were the
defaults before batches followed the data.

Minutes are of one thread's processor time (`train.clock`), so that the machine may do other things as well. An
interrupted cell goes on, and what a finished one has found is kept in docs/budgets.json with `--write`: all of them
take five hours, and need not be measured at once. Remove a cell there to measure it anew. `--stop 11:35` begins no cell
after that time of day.
"""

import argparse
import gzip
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from labelling import write_lines
from results import FILE, draw_table, name_machine, write_section

SEQLOOM = [sys.executable, "-m", "seqloom"]
FORMER = ("batch.tokens=4096", "train.judge_by=loss")
CLOCK = ("train.clock=processor", "train.threads=1")
FOUND = FILE.with_name("budgets.json")
QUIET = ("data.test=[]", "data.checks.overlap=off", "data.checks.duplicate=off")


def read_lines(path: Path) -> list[str]:
    """The lines of a compressed text."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def lay_multi30k(data: Path, texts: Path, records: int) -> None:
    """The first pairs, and all others to judge by."""
    for split, name in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr")):
        for language in ("de", "en"):
            lines = read_lines(data / "multi30k" / f"{name}.{language}.gz")
            write_lines(texts / f"{split}.{language}", lines[:records] if split == "train" else lines)


def lay_tatoeba(data: Path, texts: Path, records: int) -> None:
    """Pairs of which neither side is in what is held out: Tatoeba has many translations of one sentence."""
    columns = [line.split("\t") for line in read_lines(data / "tatoeba" / "eng-deu.tsv.gz")]
    pairs = [(german, english) for english, german, *_ in columns]
    held = pairs[::50]
    known = {side for pair in held for side in pair}
    train = [pair for pair in pairs if not known & {*pair}][:records]
    for split, chosen in (("train", train), ("valid", held[::2][:1000]), ("test", held[1::2][:1000])):
        for language, lines in zip(("de", "en"), zip(*chosen, strict=True), strict=True):
            write_lines(texts / f"{split}.{language}", lines)


def lay_trec(data: Path, texts: Path, _: int) -> None:
    """Questions with their kind."""
    for split in ("train", "test"):
        write_lines(texts / split, read_lines(data / "sentence-classification" / f"TREC.{split}.all.gz"))


def lay_treebank(data: Path, texts: Path, _: int) -> None:
    """Universal Dependencies."""
    for split, name in (("train", "train"), ("valid", "dev"), ("test", "test")):
        write_lines(texts / split, read_lines(data / "ud-english-ewt" / f"en_ewt-ud-{name}.conllu.gz"))


def lay_shakespeare(data: Path, texts: Path, _: int) -> None:
    """The first nine tenths, and the last."""
    text = "\n".join(read_lines(data / "tinyshakespeare" / "input.txt.gz"))
    cut = int(0.9 * len(text))
    for split, part in (("train", text[:cut]), ("test", text[cut:])):
        write_lines(texts / split, part.split("\n"))


PAIRS = tuple(
    f"data.{split}.{side}={split}.{end}"
    for split in ("train", "valid")
    for side, end in (("source", "de"), ("target", "en"))
)
TREEBANK = tuple(
    f"data.{split}={{format = 'conllu', files = '{split}', tags = 'upos'}}" for split in ("train", "valid")
)


class Corpus(NamedTuple):
    """What is learned from."""

    about: str
    task: str
    lay_down: Callable[[Path, Path, int], None]
    records: int
    files: tuple[str, ...]
    metric: str
    minutes: tuple[int, ...] = (2,)
    former: tuple[int, ...] = ()


CORPORA = {
    "500": Corpus("500 pairs", "translation", lay_multi30k, 500, PAIRS, "bleu", (2, 10, 60), (2,)),
    "3000": Corpus("3,000 pairs", "translation", lay_multi30k, 3_000, PAIRS, "bleu", (2, 10, 60), (2,)),
    "29000": Corpus("29,000 pairs", "translation", lay_multi30k, 29_000, PAIRS, "bleu", (2, 10, 60)),
    "160000": Corpus("160,000 pairs", "translation", lay_tatoeba, 160_000, PAIRS, "bleu", (2, 10, 60)),
    "trec": Corpus(
        "5,452 questions", "classification", lay_trec, 0,
        ("data.train={format = 'label-first', files = 'train'}", "data.valid=[]", "data.valid_fraction=0.1"),
        "accuracy",
    ),
    "treebank": Corpus("12,544 sentences", "tagging", lay_treebank, 0, TREEBANK, "accuracy"),
    "shakespeare": Corpus(
        "1 MB of text", "language-model", lay_shakespeare, 0,
        ("data.train.files=train", "data.valid.files=test"), "bits_per_byte",
    ),
}  # fmt: skip


class Cell(NamedTuple):
    """A corpus, a budget, and what is said beyond both."""

    corpus: str
    minutes: int
    given: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What its folder is called."""
        return f"{self.corpus}-{self.minutes}{'-former' if self.given else ''}"


CELLS = {
    cell.name: cell
    for name, corpus in CORPORA.items()
    for cell in (*(Cell(name, m, FORMER) for m in corpus.former), *(Cell(name, m) for m in corpus.minutes))
}
"""Cells by name."""


class Bench:
    """A folder with the texts and the runs, and what was found so far."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.found: dict[str, dict[str, Any]] = json.loads(FOUND.read_bytes()) if FOUND.exists() else {}

    def configure(self, cell: Cell) -> tuple[Path, list[str]]:
        """The configuration file of a cell, and what it is told."""
        corpus, texts = CORPORA[cell.corpus], self.folder / f"texts-{cell.corpus}"
        if not texts.exists():
            texts.mkdir(parents=True)
            corpus.lay_down(self.data, texts, corpus.records)
        config = texts / f"{corpus.task}.toml"
        if not config.exists():
            subprocess.run([*SEQLOOM, "new", corpus.task, "-o", str(config)], check=True)
        return config, [*corpus.files, *QUIET, *CLOCK, *cell.given]

    def measure(self, cell: Cell) -> None:
        """Train a cell and test it, unless that was done."""
        if cell.name in self.found:
            return
        corpus, run = CORPORA[cell.corpus], self.folder / cell.name
        config, given = self.configure(cell)
        budget = f"train.minutes={cell.minutes}.0"
        subprocess.run([*SEQLOOM, "train", str(config), *given, budget, "--out", str(run)], check=True)
        texts = config.parent
        files = [texts / f"test.{side}" for side in ("de", "en")] if corpus.files == PAIRS else [texts / "test"]
        command = [*SEQLOOM, "eval", str(run), "--data", *map(str, files), "--metrics", corpus.metric, "--json"]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        found = next(one for one in json.loads(said)["metrics"] if one["name"] == corpus.metric)
        when = {"date": str(date.today()), "machine": name_machine()}
        kept = {key: found[key] for key in ("name", "value", "low", "high")}
        self.found[cell.name] = kept | read_log(cell, run) | when

    def describe(self, cell: Cell) -> list[str]:
        """A line of the table."""
        corpus, found = CORPORA[cell.corpus], self.found.get(cell.name)
        head = [corpus.task, corpus.about, "former" if cell.given else "now", f"{cell.minutes}"]
        if found is None:
            return [*head, "not measured", "", "", "", ""]
        names = {"accuracy": (".1%", ""), "bits_per_byte": (".3f", " bits a byte"), "bleu": (".1f", " BLEU")}
        style, unit = names[corpus.metric]
        value = f"{found['value']:{style}}{unit} ({found['low']:{style}} to {found['high']:{style}})"
        return [
            *head,
            value,
            f"{found['batch']:,}",
            f"{found['steps']:,}",
            f"{found['epochs']:.1f}",
            f"{found['best']:,}",
        ]


def read_log(cell: Cell, run: Path) -> dict[str, float]:
    """How the training went: tokens a batch, steps, epochs, and the step of the best validation."""
    metric = CORPORA[cell.corpus].metric
    said = json.loads((run / "manifest.json").read_bytes())["batches"]
    batch, epoch = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", said))
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    steps, judged = sum("rate" in line for line in lines), [line for line in lines if "valid" in line]
    by_loss = cell.given or metric not in judged[0]["valid"]
    key = "loss" if by_loss else metric
    best = (min if by_loss else max)(judged, key=lambda line: line["valid"][key])["step"]
    return {"batch": batch, "steps": steps, "epochs": steps * batch / epoch, "best": best}


def write_text(bench: Bench) -> str:
    """The section of docs/results.md."""
    head = ["task", "data", "defaults", "minutes", "on test data", "batch", "steps", "epochs", "best at step"]
    table = draw_table(head, [bench.describe(cell) for cell in CELLS.values()])
    machines = sorted({f"{found['date']}, {found['machine']}" for found in bench.found.values()})
    return (
        "## What a budget buys\n\nThe default configuration: only the files and the budget are given; seed 1. "
        "Translation is from German to English: up to 29,000 pairs are of Multi30k, more of Tatoeba, each with its own "
        "validation and test data. Questions are those of TREC, sentences those of UD English EWT, the text tiny "
        "Shakespeare, in sub-words. BLEU is of all test sentences, greedy; each figure has its 95% interval. `former`: "
        "batches of 4,096 tokens, and the checkpoint with the lowest loss, the defaults before. Minutes are of one "
        "thread's processor time, validation included; the machine did other things as well. Cells were measured on: "
        f"{'; '.join(machines)}.\n\n{table}"
    )


def main() -> None:
    """Train, test and tabulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/budgets"), help="where the texts and the runs go")
    parser.add_argument("--only", nargs="*", choices=CELLS, default=list(CELLS), help="the cells to measure")
    parser.add_argument("--stop", metavar="HH:MM", default="", help="begin no cell after this time of day")
    parser.add_argument(
        "--write", action="store_true", help="renew docs/budgets.json and the section of docs/results.md"
    )
    options = parser.parse_args()
    bench = Bench(options.data, options.out)
    for name in options.only:
        if options.stop and time.strftime("%H:%M") >= options.stop:
            break
        bench.measure(CELLS[name])
        print(*bench.describe(CELLS[name]), sep="\t", flush=True)
        if options.write:
            FOUND.write_text(json.dumps(bench.found, indent=2) + "\n")
    text = write_text(bench)
    print(text)
    if options.write:
        write_section("bench/budgets.py", text)


if __name__ == "__main__":
    main()
