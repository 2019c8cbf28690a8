"""Every task and family on a little real data, from the file that `seqloom new` writes: it beats a trivial answer."""

import csv
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from seqloom.runs.run import Run
from seqloom.tasks.template import render
from seqloom.text import Tokenizer
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from shared_data import corpus

every_family = pytest.mark.parametrize(
    "family", ["transformer", *(pytest.param(name, marks=pytest.mark.long) for name in ("recurrent", "convolutional"))]
)
QUICK = ["data.test=[]", "size=tiny", "train.warmup=20", "train.threads=1", "batch.tokens=1024", "tokenizer.size=1000"]


def read_lines(name: str, count: int, skip: int = 0) -> list[str]:
    with gzip.open(corpus(name), "rt", encoding="utf-8") as file:
        return file.read().splitlines()[skip : skip + count]


def write(path: Path, lines: Iterable[str]) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def learn(task: str, stack: str, family: str, steps: int, folder: Path, overrides: Sequence[str]) -> Run:
    config = folder / "config.toml"
    config.write_text(render(task), encoding="utf-8")
    every = [f"train.steps={steps}", f"train.validate_every={steps}", f"model.{stack}.family={family}"]
    watch = PlainMonitor(Console(quiet=True))
    return train(config, [*QUICK, *every, *overrides], out=folder / "run", monitor=watch)


def measure(run: Run) -> dict[str, float]:
    """The last look at the validation data."""
    lines = [json.loads(line) for line in run.log.path.read_text().splitlines()]
    measures: dict[str, float] = [line["valid"] for line in lines if "valid" in line][-1]
    return measures


def count_tokens(run: Run, texts: Iterable[str], ends: int = 1) -> list[int]:
    tokenizer = Tokenizer.load(run.folder / "tokenizer.json")
    return [id for ids in tokenizer.encode_batch(list(texts)) for id in [*ids, *[-1] * ends]]


def guess_by_frequency(known: Sequence[int], asked: Sequence[int]) -> float:
    """The loss of always answering with the frequencies of the training tokens, each counted once more than it is."""
    counts = Counter(known)
    total = len(known) + len(counts) + 1
    return -sum(math.log((counts[token] + 1) / total) for token in asked) / len(asked)


@every_family
def test_translation(family: str, tmp_path: Path) -> None:
    texts = {
        (split, side): read_lines(f"multi30k/{name}.lc.norm.tok.{side}.gz", count)
        for split, name, count in (("train", "train", 1500), ("valid", "val", 60))
        for side in ("de", "en")
    }
    paths = {key: write(tmp_path / ".".join(key), lines) for key, lines in texts.items()}
    sides = [("source", "de"), ("target", "en")]
    files = [f"data.{split}.{role}={paths[split, side]}" for split in ("train", "valid") for role, side in sides]
    run = learn("translation", "encoder", family, 90, tmp_path, [*files, "train.label_smoothing=0.0"])
    known, asked = (count_tokens(run, texts[split, "en"]) for split in ("train", "valid"))
    assert measure(run)["loss"] < guess_by_frequency(known, asked)


@every_family
@pytest.mark.parametrize(
    ("task", "stack"),
    [("language-model", "decoder"), ("masked-language-model", "encoder"), ("bidirectional-language-model", "encoder")],
)
def test_language_models(task: str, stack: str, family: str, tmp_path: Path) -> None:
    texts = {
        "train": [line for line in read_lines("tinyshakespeare/input.txt.gz", 6000) if line],
        "valid": [line for line in read_lines("tinyshakespeare/input.txt.gz", 400, skip=36000) if line],
    }
    files = [f"data.{split}.files={write(tmp_path / split, lines)}" for split, lines in texts.items()]
    rows = 'batch.rows={kind = "lines", max_length = 64}'
    run = learn(task, stack, family, 90, tmp_path, [*files, rows, "train.label_smoothing=0.0"])
    known, asked = (count_tokens(run, texts[split]) for split in ("train", "valid"))
    assert measure(run)["loss"] < guess_by_frequency(known, asked)


@every_family
def test_classification(family: str, tmp_path: Path) -> None:
    splits = {"train": read_lines("sentence-classification/TREC.train.all.gz", 2000)}
    splits["valid"] = read_lines("sentence-classification/TREC.test.all.gz", 300)
    files = []
    for split, lines in splits.items():
        rows = ["text\tlabel", *(f"{text}\t{label}" for label, text in (line.split(" ", 1) for line in lines))]
        files.append(f"data.{split}.files={write(tmp_path / f'{split}.tsv', rows)}")
    run = learn("classification", "encoder", family, 90, tmp_path, files)
    known = Counter(line[0] for line in splits["train"]).most_common(1)[0][0]
    assert measure(run)["accuracy"] > 0.15 + sum(line[0] == known for line in splits["valid"]) / len(splits["valid"])


@every_family
def test_similarity_of_pairs(family: str, tmp_path: Path) -> None:
    files = []
    for split, count in (("train", 2000), ("dev", 300)):
        rows = list(csv.reader(read_lines(f"stsb/stsb-en-{split}.csv.gz", count)))
        lines = ["text\tsecond\tlabel", *("\t".join(row) for row in rows if len(row) == 3)]
        role = "train" if split == "train" else "valid"
        path = write(tmp_path / f"{split}.tsv", lines)
        columns = f'data.{role}.columns={{text = "text", second = "second", label = "label"}}'
        files += [f"data.{role}.files={path}", columns]
    run = learn("classification", "encoder", family, 90, tmp_path, [*files, 'data.labels="numbers"'])
    assert measure(run)["pearson"] > 0.1


@every_family
def test_tagging(family: str, tmp_path: Path) -> None:
    files, tags = [], {}
    for split, name, count in (("train", "train", 20000), ("valid", "dev", 4000)):
        lines = read_lines(f"ud-english-ewt/en_ewt-ud-{name}.conllu.gz", count)
        rows = [line.split("\t") for line in lines]
        last = max(number for number, row in enumerate(rows) if row == [""])
        words = [f"{row[1]} {row[3]}" if len(row) == 10 else "" for row in rows[:last] if len(row) == 10 or row == [""]]
        tags[split] = [row.split(" ")[1] for row in words if row]
        files.append(f"data.{split}.files={write(tmp_path / f'{split}.conll', words)}")
    run = learn("tagging", "encoder", family, 90, tmp_path, files)
    usual = Counter(tags["train"]).most_common(1)[0][0]
    assert measure(run)["accuracy"] > 0.2 + tags["valid"].count(usual) / len(tags["valid"])
