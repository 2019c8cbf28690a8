"""What `seqloom check` announces about records that are too long, beside what training then does with them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from seqloom.data.doctor.report import Rehearsal
from seqloom.data.masking import MaskedBatch
from seqloom.errors import ConfigError, DataError
from seqloom.tasks import Task
from seqloom.tasks.configuration import load
from seqloom.training.job import train
from seqloom.training.monitor import PlainMonitor
from seqloom.training.prepare import prepare
from seqloom.training.rehearsal import rehearse
from seqloom.types import TokenBatch

LENGTHS = [3, 5, 1, 12, 4, 6, 2, 25, 3, 5, 7, 9]
"""Words of each record; no word is in two records, and a row has room for 8 tokens."""
LIMIT = 8
DATA = {
    "translation": 'source = "{}.txt"\ntarget = "{}.target"',
    "language-model": 'files = "{}.txt"',
    "masked-language-model": 'files = "{}.txt"',
    "bidirectional-language-model": 'files = "{}.txt"',
    "classification": 'files = "{}.tsv"',
    "tagging": 'format = "conll"\nfiles = "{}.conll"',
}
LINES = 'rows = {{kind = "lines", max_length = {}, over = "{}"}}'
RECORDS = 'max_length = {}\nover = "{}"'
CASES = [
    *((task, over) for task in ("translation", "classification") for over in ("drop", "cut")),
    *(("tagging", over) for over in ("drop", "cut", "split")),
    *((task, over) for task in DATA if task.endswith("language-model") for over in ("drop", "cut", "split")),
]
DEFAULT = {"translation": "left out", "classification": "left out"}


def words(record: int, side: str = "") -> list[str]:
    return [f"{side}r{record}w{word}" for word in range(LENGTHS[record])]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    lines = [" ".join(words(record)) for record in range(len(LENGTHS))]
    write = {
        "txt": lines,
        "target": ["ta tb"] * len(lines),
        "tsv": ["text\tlabel", *(f"{line}\t{'ab'[number % 2]}" for number, line in enumerate(lines))],
        "conll": ["\n".join(f"{word} {'XY'[len(word) % 2]}" for word in line.split()) + "\n" for line in lines],
    }
    for ending, content in write.items():
        for split in ("train", "valid"):
            (folder / f"{split}.{ending}").write_text("\n".join(content) + "\n", encoding="utf-8")
    return folder


def write_config(project: Path, task: str, batch: str, positions: str = "") -> Path:
    stack = "decoder" if task == "language-model" else "encoder"
    path = project / "config.toml"
    path.write_text(f"""
task = "{task}"
tokenizer = {{kind = "words", min_frequency = 1}}
data.checks = {{duplicate = "off", overlap = "off", length_ratio = "off", misaligned = "off"}}
[data.train]
{DATA[task].replace("{}", "train")}
[data.valid]
{DATA[task].replace("{}", "valid")}
[batch]
tokens = 64
{batch}
[model.{stack}]
num_layers = 1
model_dim = 8
num_heads = 2
{positions}
[train]
threads = 1
steps = 2
""")
    return path


def announce(path: Path, folder: Path) -> Rehearsal:
    """What `seqloom check` prints about the records, for which it calls this function."""
    task = load(path, words=sum(LENGTHS))
    assert isinstance(task, Task)
    return rehearse(task, path.parent, folder, lambda _: None)


def find_read(path: Path, folder: Path) -> set[str]:
    """The words in all rows of an epoch, as training makes them."""
    task = load(path, words=100)
    assert isinstance(task, Task)
    prepared = prepare(task, path.parent, folder, lambda _: None)
    found: set[str] = set()
    for step in range(len(prepared.train)):
        batch = prepared.train.build(step)
        if isinstance(batch, MaskedBatch):
            rows = torch.where(batch.hidden, batch.targets, batch.text.ids)
        elif isinstance(batch, TokenBatch):
            rows = batch.ids
        else:
            rows = batch.source.ids if hasattr(batch, "source") else batch.text.ids
        found |= {prepared.tokenizer.token(int(id)) for id in rows.flatten()}
    return found


@pytest.mark.parametrize(("task", "over"), CASES)
def test_training_does_what_check_announces(task: str, over: str, project: Path, tmp_path: Path) -> None:
    path = write_config(project, task, (LINES if "language-model" in task else RECORDS).format(LIMIT, over))
    rehearsal = announce(path, tmp_path / "check")
    said: list[str] = []
    console = Console(quiet=True)
    console.print = lambda *parts, **_: said.append(" ".join(map(str, parts)))  # type: ignore[method-assign]
    run = train(path, out=tmp_path / "run", monitor=PlainMonitor(console))
    announced = [(part.split, place, part.what) for part in rehearsal.treated for place in part.places]
    assert announced, "some records are too long"
    assert [tuple(line.split("\t")) for line in run.treated.read_text().splitlines()] == announced
    for part in rehearsal.treated:
        assert f"{part.split}: {part.count} {part.what}" in said
        assert f"    {part.places[0]}" in said
    # What is said is also what happens: the words that are read while training.
    read = find_read(path, tmp_path / "other")
    lines = [int(place.rpartition(":")[2]) for split, place, _ in announced if split == "train"]
    starts = [1 + sum(length + 1 for length in LENGTHS[:record]) for record in range(len(LENGTHS))]
    for record in range(len(LENGTHS)):
        line = {"tagging": starts[record], "classification": record + 2}.get(task, record + 1)
        some, every = bool(read & set(words(record))), read >= set(words(record))
        assert (some, every) == {
            "whole": (True, True),
            "drop": (False, False),
            "cut": (True, False),
            "split": (True, True),
        }[over if line in lines else "whole"]


@pytest.mark.parametrize("task", list(DATA))
def test_records_beyond_the_table_of_positions_are_too_long(task: str, project: Path, tmp_path: Path) -> None:
    batch = 'rows = "lines"' if "language-model" in task else ""
    path = write_config(project, task, batch, f'positions = {{kind = "learned", table = {LIMIT}}}')
    if task == "translation":
        path.write_text(path.read_text().replace("tokens = 64", "tokens = 1100"))
    treated = announce(path, tmp_path / "check").treated
    assert {part.split for part in treated} == {"train", "valid"}
    assert all("as many as there are positions" in part.what for part in treated)
    assert all(part.what.endswith(DEFAULT.get(task, "split")) for part in treated)
    run = train(path, out=tmp_path / "run", monitor=PlainMonitor(Console(quiet=True)))
    assert run.weights.exists()


@pytest.mark.parametrize("task", ["language-model", "masked-language-model"])
def test_packed_rows_split_at_the_table_of_positions(task: str, project: Path, tmp_path: Path) -> None:
    table = f'positions = {{kind = "learned", table = {LIMIT}}}'
    path = write_config(project, task, 'rows = {kind = "packed", length = 32}', table)
    assert announce(path, tmp_path / "check").treated[0].what.endswith("split")
    run = train(path, out=tmp_path / "run", monitor=PlainMonitor(Console(quiet=True)))
    assert run.weights.exists()
    assert find_read(path, tmp_path / "other") >= {word for record in range(len(LENGTHS)) for word in words(record)}


def test_windows_longer_than_the_table_are_refused_by_both(project: Path, tmp_path: Path) -> None:
    table = f'positions = {{kind = "learned", table = {LIMIT}}}'
    path = write_config(project, "language-model", "rows = {length = 16}", table)
    done = subprocess.run([sys.executable, "-m", "seqloom", "check", str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    sentence = "batch.rows.length = 16, but the model has only 8 positions"
    assert sentence in done.stdout
    assert "training may start" not in done.stdout
    with pytest.raises(ConfigError, match=sentence):
        train(path, out=tmp_path / "run", monitor=PlainMonitor(Console(quiet=True)))


def test_refused_records_are_refused_by_both(project: Path, tmp_path: Path) -> None:
    path = write_config(project, "translation", RECORDS.format(LIMIT, "refuse"))
    done = subprocess.run([sys.executable, "-m", "seqloom", "check", str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "train.txt:4: the record has more than max_length = 8 tokens" in done.stdout
    with pytest.raises(DataError, match=r"train\.txt:4"):
        train(path, out=tmp_path / "run", monitor=PlainMonitor(Console(quiet=True)))


def test_check_says_what_it_counted_with_and_shows_the_first_places(project: Path) -> None:
    path = write_config(project, "classification", RECORDS.format(4, "drop"))
    command = [sys.executable, "-m", "seqloom", "check", str(path), "--no-forecast"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "tokens were counted with a tokeniser learned here as training learns it" in done.stdout
    assert "tokens a record: mean 6.83, median 5, 95% within 12, longest 25" in done.stdout
    assert "train: 10 records of more than 4 tokens left out" in done.stdout
    assert f"    {project / 'train.tsv'}:2\n" in done.stdout
    assert "… and 5 more" in done.stdout


def test_a_record_that_was_split_has_each_of_its_tags_once(project: Path, tmp_path: Path) -> None:
    path = write_config(project, "tagging", RECORDS.format(LIMIT, "split"))
    task = load(path, words=100)
    assert isinstance(task, Task)
    prepared = prepare(task, path.parent, tmp_path, lambda _: None)
    found = []
    for step in range(len(prepared.train)):
        batch = prepared.train.build(step)
        tagged = zip(batch.text.ids[batch.tagged], batch.tags[batch.tagged], strict=True)
        found += [(prepared.tokenizer.token(int(id)), prepared.labels[int(tag)]) for id, tag in tagged]
    wanted = [(word, "XY"[len(word) % 2]) for record in range(len(LENGTHS)) for word in words(record)]
    assert sorted(found) == sorted(wanted)
