"""Texts and their classes, with and without pretraining: `python bench/classification.py DATA [--only SET] [--write]`

DATA is a folder with SST-2 (`stsa.binary.train.gz`, dev and test) and TREC (`TREC.train.all.gz`, test), a label and a
text a line; beside it, in `tatoeba` and `enwik8`, is text without labels. Three models learn from that and from the
training sentences of both sets, without their labels: a masked language model, static word vectors, and a bidirectional
language model (ELMo). Classifiers begin with them, with three seeds; the table has the run of the median accuracy. A
finished run in `--out` is only evaluated.
"""

import argparse
import gzip
from pathlib import Path
from typing import NamedTuple

from labelling import evaluate, measure_minutes, train, write_lines
from results import draw_table, write_section
from unlabelled import read_encyclopedia, read_everyday

REPEATS = 4
"""How often the text without labels has each training sentence."""


class Labelled(NamedTuple):
    """A set of labelled texts, where its files are and how it is trained on."""

    about: str
    files: dict[str, str]
    given: tuple[str, ...]


SETS = {
    "sst": Labelled(
        "SST-2",
        {"train": "stsa.binary.train", "valid": "stsa.binary.dev", "test": "stsa.binary.test"},
        ("data.valid={format = 'label-first', files = 'sst.valid'}", "train.epochs=4"),
    ),
    "trec": Labelled(
        "TREC",
        {"train": "TREC.train.all", "test": "TREC.test.all"},
        ("data.valid=[]", "data.valid_fraction=0.1", "train.epochs=8"),
    ),
}
TEXT = ("data.train.files=text.txt", "data.valid.files=valid.txt", "data.checks.duplicate=off")
WORDS = "tokenizer={kind = 'words', punctuation = 'keep', size = 12000}"
FEWER = "tokenizer={kind = 'words', punctuation = 'keep', size = 6000}"
"""For what predicts every word, twice: its output layer takes most of the time."""
TRANSFORMER = ("model.encoder.num_layers=2", "model.encoder.model_dim=128")
RECURRENT = ("model.encoder.family=recurrent", "model.encoder.num_layers=1", "model.encoder.model_dim=128")
READING = (
    "model.encoder.dropout=0.1",
    "model.embedding_dropout=0.1",
    "batch.tokens=2048",
    "train.label_smoothing=0.0",
    "train.warmup=100",
)
STARTS = {
    "masked": ("masked-language-model", (*TEXT, WORDS, *TRANSFORMER, *READING, "masking.rate=0.2", "train.steps=3600")),
    "static": ("word-vectors", (TEXT[0], TEXT[2], "vectors.dim=128", "vectors.min_count=2", "vectors.epochs=8")),
    "reader": ("bidirectional-language-model", (*TEXT, FEWER, *RECURRENT, *READING, "train.steps=700")),
}
"""What learns from text without labels: its task, and what is said beyond the file that `seqloom new` writes for it."""


class Row(NamedTuple):
    """A classifier: what is said beyond the file that `seqloom new classification` writes."""

    about: str
    given: tuple[str, ...]


SHORT = ("batch.tokens=1024", "train.warmup=100", "train.validate_every=100")
DROPOUT = ("model.encoder.dropout=0.3", "model.embedding_dropout=0.3")
VECTORS = ("model.initial_vectors=static/vectors.bin", "model.scale_embeddings=false", "train.freeze=embedding")
KNOWN = "tokenizer={kind = 'file', path = 'reader/tokenizer.json'}"
ROWS = {
    "scratch": Row("Transformer from scratch", (WORDS, *TRANSFORMER)),
    "masked": Row(
        "Transformer after masked language modelling", ("init=masked", "train.optimizer.learning_rate=0.003")
    ),
    "static": Row("LSTM on static vectors", (KNOWN, *RECURRENT, *VECTORS, "train.optimizer=adamw")),
    "elmo": Row("LSTM on static vectors and ELMo", ("init=reader", *RECURRENT, *VECTORS, "train.optimizer=adamw")),
}


def lay_down(data: Path, folder: Path) -> None:
    """Everything in lower case: the labelled sets, and the text without labels."""
    folder.mkdir(parents=True, exist_ok=True)
    texts: dict[str, list[str]] = {}
    for name, (_, files, _) in SETS.items():
        for split, file in files.items():
            with gzip.open(data / f"{file}.gz", "rt", encoding="utf-8", newline="\n") as packed:
                lines = packed.read().lower().rstrip("\n").split("\n")
            write_lines(folder / f"{name}.{split}", lines)
            texts[f"{name}.{split}"] = [line.partition(" ")[2] for line in lines]
    others = (line.lower() for read in (read_everyday, read_encyclopedia) for line in read(data.parent))
    write_lines(folder / "text.txt", [*(texts["sst.train"] + texts["trec.train"]) * REPEATS, *others])
    write_lines(folder / "valid.txt", texts["sst.valid"])


def train_all(sets: list[str], seeds: range, folder: Path, threads: int) -> None:
    """What classifiers begin with, and then the classifiers."""
    for name, (task, given) in STARTS.items():
        train(folder / name, task, given, threads)
    for name in sets:
        for row, (_, given) in ROWS.items():
            for seed in seeds:
                files = f"data.train={{format = 'label-first', files = '{name}.train'}}"
                settings = (files, *SETS[name].given, *SHORT, *DROPOUT, *given, f"train.seed={seed}")
                train(folder / f"{name}-{row}-{seed}", "classification", settings, threads)


def tabulate(sets: list[str], seeds: range, folder: Path) -> str:
    """The section of docs/results.md."""
    rows = []
    for name in sets:
        for row, (about, _) in ROWS.items():
            runs = [folder / f"{name}-{row}-{seed}" for seed in seeds]
            found = sorted(evaluate(run, folder / f"{name}.test") for run in runs)
            spent = sum(map(measure_minutes, runs)) / len(runs)
            spread = f"{found[0].value:.1%} to {found[-1].value:.1%}"
            rows.append([SETS[name].about, about, str(found[len(found) // 2]), spread, f"{spent:.1f}"])
    starts = ", ".join(f"{measure_minutes(folder / name):.1f} ({task})" for name, (task, _) in STARTS.items())
    words = sum(len(line.split()) for line in (folder / "text.txt").open(encoding="utf-8"))
    parts = [
        f"## Classification: SST-2 and TREC\n\nAccuracy on the test set, the median of {len(seeds)} seeds with its 95% "
        "interval, the least and the most; minutes of one processor. SST-2: sentences only, without their phrases.",
        draw_table(["set", "classifier", "accuracy", "of all seeds", "minutes"], rows),
        f"The text without labels has {words:,} words: the training sentences of both sets, {REPEATS} times, the "
        f"English of Tatoeba, the first 10 MB of enwik8; all in lower case. Minutes spent on it: {starts}.",
        "The rate after masked language modelling is the better of two on the validation data (0.001 and 0.003, first "
        "seed, after half as much of it); no other row had its rate chosen. Intervals are those of one run on one test "
        "set: where they overlap, the difference may be chance.",
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Train and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/classification"), help="where texts and runs go")
    parser.add_argument("--only", nargs="*", choices=SETS, default=list(SETS), help="what to train")
    parser.add_argument("--seeds", type=int, default=3, help="how often each classifier is trained")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    lay_down(options.data, options.out)
    seeds = range(1, options.seeds + 1)
    train_all(options.only, seeds, options.out, options.threads)
    text = tabulate(options.only, seeds, options.out)
    print(text)
    if options.write:
        write_section("bench/classification.py", text)


if __name__ == "__main__":
    main()
