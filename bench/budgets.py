"""What a budget buys: `python bench/budgets.py DATA [--counted] [--only CELL ...] [--write]`

DATA is a folder with `multi30k`, `tatoeba`, `sentence-classification`, `ud-english-ewt` and `tinyshakespeare`. A cell
is a corpus and a number of minutes: a model with the default configuration, which is given nothing but its files and
`train.minutes`, is trained and tested. Of Multi30k the first pairs are taken; of Tatoeba, every 50th pair is held out,
half of those to validate on and half to test on. Cells with `former` in their name have the settings that were the
defaults before batches followed the data. A finished cell is only read; an interrupted one goes on.

With `--counted`, a minute is one of a processor's time, on a machine that does other things as well. How many steps a
second of it makes is measured once for each corpus, by one thread, and kept in `pace.json`; a cell then has
`train.steps`: as many as that gives in its minutes, but for the 15% that validations may take. `--stop 11:35` begins no
cell after that time of day.
"""

import argparse
import gzip
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from labelling import write_lines
from results import draw_table, write_section

from seqloom.tasks import Task
from seqloom.training.distributed import ProcessGroup
from seqloom.training.job import build
from seqloom.training.prepare import open_config, prepare
from seqloom.training.step import Learner, take_step

SEQLOOM = [sys.executable, "-m", "seqloom"]
FORMER = ("batch.tokens=4096", "train.judge_by=loss")
TRIES, SECONDS, FOR_STEPS = 3, 6.0, 0.85
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
    """A folder with the texts, the paces and the runs."""

    def __init__(self, data: Path, folder: Path, *, counted: bool) -> None:
        self.data, self.folder, self.counted = data, folder, counted

    def run_of(self, cell: Cell) -> Path:
        """The folder of a cell's run."""
        return self.folder / (f"{cell.name}-counted" if self.counted else cell.name)

    def configure(self, cell: Cell) -> tuple[Path, list[str]]:
        """The configuration file of a cell, and what it is told."""
        corpus, texts = CORPORA[cell.corpus], self.folder / f"texts-{cell.corpus}"
        if not texts.exists():
            texts.mkdir(parents=True)
            corpus.lay_down(self.data, texts, corpus.records)
        config = texts / f"{corpus.task}.toml"
        if not config.exists():
            subprocess.run([*SEQLOOM, "new", corpus.task, "-o", str(config)], check=True)
        return config, [*corpus.files, *QUIET, *cell.given]

    def find_pace(self, cell: Cell) -> float:
        """Steps in a second of one processor's time; the most of some tries, the first time it is asked for."""
        kept = self.folder / "pace.json"
        known = json.loads(kept.read_bytes()) if kept.exists() else {}
        name = f"{cell.corpus}{'-former' if cell.given else ''}"
        if name not in known:
            known[name] = measure_pace(*self.configure(cell), self.folder / f"pace-{name}")
            kept.write_text(json.dumps(known, indent=2))
        return float(known[name])

    def train(self, cell: Cell) -> None:
        """Train a cell, unless it is finished."""
        run = self.run_of(cell)
        config, given = self.configure(cell)
        if (run / "manifest.json").exists():
            return
        budget = [f"train.minutes={cell.minutes}.0"]
        if self.counted:
            steps = int(FOR_STEPS * 60 * cell.minutes * self.find_pace(cell))
            budget = [f"train.steps={steps}", "train.threads=1"]
        subprocess.run([*SEQLOOM, "train", str(config), *given, *budget, "--out", str(run)], check=True)

    def evaluate(self, cell: Cell) -> str:
        """The metric of its task and its interval, on all test data."""
        corpus, kept = CORPORA[cell.corpus], self.run_of(cell) / "test.json"
        if not kept.exists():
            texts = self.folder / f"texts-{cell.corpus}"
            files = [texts / f"test.{side}" for side in ("de", "en")] if corpus.files == PAIRS else [texts / "test"]
            command = [*SEQLOOM, "eval", str(self.run_of(cell)), "--data", *map(str, files), "--metrics", corpus.metric]
            kept.write_bytes(subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE).stdout)
        found = next(one for one in json.loads(kept.read_bytes())["metrics"] if one["name"] == corpus.metric)
        style, unit = {"accuracy": (".1%", ""), "bits_per_byte": (".3f", " bits a byte")}.get(
            corpus.metric, (".1f", " BLEU")
        )
        return f"{found['value']:{style}}{unit} ({found['low']:{style}} to {found['high']:{style}})"

    def describe(self, cell: Cell) -> list[str]:
        """A line of the table."""
        corpus, run = CORPORA[cell.corpus], self.run_of(cell)
        head = [corpus.task, corpus.about, "former" if cell.given else "now", f"{cell.minutes}"]
        if not (run / "manifest.json").exists():
            return [*head, "not run", "", "", "", ""]
        said = json.loads((run / "manifest.json").read_bytes())["batches"]
        batch, epoch = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", said))
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        steps, judged = sum("rate" in line for line in lines), [line for line in lines if "valid" in line]
        by_loss = cell.given or corpus.metric not in judged[0]["valid"]
        key = "loss" if by_loss else corpus.metric
        best = (min if by_loss else max)(judged, key=lambda line: line["valid"][key])["step"]
        return [*head, self.evaluate(cell), f"{batch:,}", f"{steps:,}", f"{steps * batch / epoch:.1f}", f"{best:,}"]


def measure_pace(config: Path, given: list[str], folder: Path) -> float:
    """Steps in a second of one processor's time: the most of some tries."""
    task = open_config(config, given, folder, print)
    assert isinstance(task, Task)
    prepared = prepare(task, config.parent, folder, print)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    learner, step, best = Learner(build(task, prepared, config.parent), task, ProcessGroup()), 0, 0.0
    for _ in range(TRIES):
        first, started = step, time.process_time()
        while time.process_time() - started < SECONDS:
            take_step(learner, [prepared.train.build(step)], step)
            step += 1
        best = max(best, (step - first) / (time.process_time() - started))
    torch.set_num_threads(threads)
    return best


def write_text(bench: Bench) -> str:
    """The section of docs/results.md."""
    head = ["task", "data", "defaults", "minutes", "on test data", "batch", "steps", "epochs", "best at step"]
    table = draw_table(head, [bench.describe(cell) for cell in CELLS.values()])
    clock = "Minutes are by the clock, on all cores."
    if bench.counted:
        paces = json.loads((bench.folder / "pace.json").read_bytes())
        told = ", ".join(f"{pace:.1f} ({name})" for name, pace in paces.items())
        clock = (
            "The machine did other things as well, so minutes are of one processor's time, and counted in steps: as "
            "many as one thread makes in that time, but for the 15% that validations may take. Steps in a second of "
            f"that time, the most of {TRIES} tries of {SECONDS:.0f} seconds: {told}."
        )
    return (
        "## What a budget buys\n\nThe default configuration: only the files and the budget are given; seed 1. "
        "Translation is from German to English: up to 29,000 pairs are of Multi30k, more of Tatoeba, each with its own "
        "validation and test data. Questions are those of TREC, sentences those of UD English EWT, the text tiny "
        "Shakespeare, in sub-words. BLEU is of all test sentences, greedy; each figure has its 95% interval. `former`: "
        f"batches of 4,096 tokens, and the checkpoint with the lowest loss, the defaults before. {clock}\n\n{table}"
    )


def main() -> None:
    """Train, test and tabulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/budgets"), help="where the texts and the runs go")
    parser.add_argument("--only", nargs="*", choices=CELLS, default=list(CELLS), help="the cells to train")
    parser.add_argument("--counted", action="store_true", help="minutes of a processor, counted in steps")
    parser.add_argument("--stop", metavar="HH:MM", default="", help="begin no cell after this time of day")
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    bench = Bench(options.data, options.out, counted=options.counted)
    for name in options.only:
        if not options.stop or time.strftime("%H:%M") < options.stop:
            bench.train(CELLS[name])
            print(*bench.describe(CELLS[name]), sep="\t", flush=True)
    text = write_text(bench)
    print(text)
    if options.write:
        write_section("bench/budgets.py", text)


if __name__ == "__main__":
    main()
