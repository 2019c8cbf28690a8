"""From a configuration and the user's files to batches: check, learn the tokeniser, encode, frame."""

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqloom.config.tokenizer import TokenizerFile
from seqloom.data.batching import Batches
from seqloom.data.columns import Column
from seqloom.data.corpus import SPLITS, Corpus, open_split
from seqloom.data.doctor import examine
from seqloom.data.encoding import encode_corpus
from seqloom.data.shards import Records
from seqloom.runs.run import read_seen
from seqloom.tasks import Config, Task
from seqloom.tasks.configuration import load
from seqloom.text import Tokenizer
from seqloom.types import Seen

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """Everything a training needs to know of the data."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    """The labels or tags, in the order of their numbers; empty where there are none."""
    train: Batches[Any]
    valid: Batches[Any] | None
    fingerprint: str
    """Differs whenever the training data do."""
    seen: Seen | None = None
    """What a model in use has to know of the training data."""


def open_config(path: Path, overrides: Sequence[str], folder: Path, say: Say) -> Config:
    """Read a configuration and check its data; the size of the model follows theirs."""
    config = load(path, overrides)
    say("checking the data")
    report = examine(config.data, path.parent, folder / "data" / "checks")
    report.refuse()
    return load(path, overrides, words=report.words)


def prepare(task: Task, base: Path, folder: Path, say: Say) -> Prepared:
    """Make the batches of a configuration; what can be used again is kept in the run's folder."""
    splits = {split: open_split(task.data, split, base) for split in SPLITS}
    return make_batches(task, splits["train"], splits["valid"], base, folder, say)


def make_batches(
    task: Task, train: Sequence[Corpus], valid: Sequence[Corpus], base: Path, folder: Path, say: Say
) -> Prepared:
    """Learn the tokeniser, encode the corpora and frame them."""
    tokenizer = _get_tokenizer(task, train, base, folder, say)
    labels = task.find_labels(example for corpus in train for example in corpus)
    columns = task.make_columns(tokenizer, labels)
    known, fingerprint = _encode("train", train, columns, folder, say)
    unknown = _encode("valid", valid, columns, folder, say)[0] if valid else None
    return Prepared(
        tokenizer,
        labels,
        task.make_batches(known, tokenizer, [corpus.weight for corpus in train]),
        None if unknown is None else task.make_batches(unknown, tokenizer),
        fingerprint,
        _find_seen(task, train, labels, known, tokenizer, base),
    )


def _find_seen(
    task: Task, train: Sequence[Corpus], labels: tuple[str, ...], records: Records, tokenizer: Tokenizer, base: Path
) -> Seen:
    """What the training data held; what the run that it starts from has seen is seen, too."""
    seen = task.find_seen((example for corpus in train for example in corpus), labels, records, tokenizer)
    if task.init is None:
        return seen
    earlier = read_seen(base / task.init)
    return replace(seen, unseen=tuple(sorted({*seen.unseen} & {*(() if earlier is None else earlier.unseen)})))


def _get_tokenizer(task: Task, corpora: Sequence[Corpus], base: Path, folder: Path, say: Say) -> Tokenizer:
    """The tokeniser of an earlier start of the same run, or a new one learned from the training texts."""
    path = folder / "tokenizer.json"
    if not path.exists() and task.init is not None:
        folder.mkdir(parents=True, exist_ok=True)
        Tokenizer.load(base / task.init / "tokenizer.json").save(path)
    if path.exists():
        return Tokenizer.load(path)
    say("learning the tokeniser")
    kind = task.tokenizer
    if isinstance(kind, TokenizerFile):
        kind = kind.model_copy(update={"path": str(base / kind.path)})  # as every name in a configuration
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        texts = (text for corpus in corpora for example in corpus for text in task.read_texts(example))
        tokenizer = Tokenizer.train(texts, kind)
    for notice in noticed:
        say(str(notice.message))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(path)
    return tokenizer


def _encode(
    split: str, corpora: Sequence[Corpus], columns: Mapping[str, Column], folder: Path, say: Say
) -> tuple[Records, str]:
    folders = [folder / "data" / f"{split}-{number}" for number in range(len(corpora))]
    digest = hashlib.sha256()
    for corpus, target in zip(corpora, folders, strict=True):
        say(f"encoding the {split} data")
        digest.update(repr([shard.sha256 for shard in encode_corpus(corpus, columns, target).manifest.shards]).encode())
    return Records(folders), digest.hexdigest()
