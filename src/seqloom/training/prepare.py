"""From a configuration and the user's files to batches: check, learn the tokeniser, encode, frame."""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqloom.config.data import ParallelData
from seqloom.config.tokenizer import TokenizerConfig, TokenizerFile, TokenizerPair
from seqloom.data.batching import Batches
from seqloom.data.columns import Column
from seqloom.data.corpus import SPLITS, Corpus, open_split
from seqloom.data.doctor import examine
from seqloom.data.encoding import Spread, encode_corpus
from seqloom.data.shards import Records
from seqloom.data.subset import Subset, choose_share
from seqloom.errors import ConfigError, DataError
from seqloom.runs.run import read_seen
from seqloom.tasks import Config, Task
from seqloom.tasks.configuration import load
from seqloom.text import Tokenizer
from seqloom.text.files import find_files
from seqloom.types import Seen

Say = Callable[[str], None]
SAID = ("joined_labels", "same_sides", "swapped_sides")
"""Warnings about what the data are for, which training repeats; `seqloom check` shows the others."""
SEVERAL_SENTENCES = 0.02
"""If fewer of the training sources have several sentences, the model knows single sentences only."""


@dataclass(frozen=True)
class Treated:
    """Records of a split that are left out, cut or split."""

    split: str
    what: str
    """Which ones, and what is done with them."""
    records: Records
    numbers: NDArray[np.int64]

    @property
    def places(self) -> Iterator[str]:
        """Where they are, as `file:line`."""
        return self.records.locate_all(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class Prepared:
    """Everything a training needs to know of the data."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    """The labels or tags, in the order of their numbers; empty where there are none."""
    train: Batches[Any]
    valid: Batches[Any] | None
    records: dict[str, Records]
    """The encoded records of each split."""
    fingerprint: str
    """Differs whenever the training data do."""
    seen: Seen | None = None
    """What a model in use has to know of the training data."""

    @property
    def treated(self) -> Iterator[Treated]:
        """The records that are not trained on, or judged by, as they are."""
        for split, batches in (("train", self.train), ("valid", self.valid)):
            for what, numbers in batches.samples.treated.items() if batches is not None else ():
                if len(numbers):
                    yield Treated(split, what, self.records[split], numbers)


def open_config(path: Path, overrides: Sequence[str], folder: Path, say: Say) -> Config:
    """Read a configuration and check its data; the size of the model follows theirs."""
    config = load(path, overrides)
    say("checking the data")
    whole = config.data.model_copy(update={"train_share": 1.0})  # all records are checked, whatever is trained on
    report = examine(whole, path.parent, folder / "data" / "checks")
    report.refuse()
    for finding in report.findings:
        if finding.kind in SAID:
            say(f"{finding.split}: {finding.places[0].message}")
    config = load(path, overrides, words=report.words)
    for sentence in config.describe_idle_keys() if isinstance(config, Task) else ():
        say(sentence)
    data, several = config.data, report.several_sentences
    if isinstance(data, ParallelData) and data.source_unit is None and several is not None:
        unit = "sentence" if several < SEVERAL_SENTENCES else "line"
        say(f"{several:.1%} of the sources have several sentences: a text will be translated by the {unit}")
        config = config.model_copy(update={"data": data.model_copy(update={"source_unit": unit})})
    return config


def prepare(task: Task, base: Path, folder: Path, say: Say, spread: Spread | None = None) -> Prepared:
    """Make the batches of a configuration; what can be used again is kept in the run's folder.

    `spread` says where the texts are encoded, by default here.
    """
    splits = {split: open_split(task.data, split, base) for split in SPLITS}
    return make_batches(task, splits["train"], splits["valid"], base, folder, say, spread)


def make_batches(
    task: Task,
    train: Sequence[Corpus],
    valid: Sequence[Corpus],
    base: Path,
    folder: Path,
    say: Say,
    spread: Spread | None = None,
) -> Prepared:
    """Learn the tokeniser, encode the corpora and frame them."""
    tokenizer = _get_tokenizer(task, train, base, folder, say)
    labels = task.find_labels(example for corpus in train for example in corpus)
    columns = task.make_columns(tokenizer, labels)
    learned = choose_share(task.data, train, task.train.seed)
    known, fingerprint = _encode("train", learned, columns, folder, say, spread)
    if not len(known) and task.data.train_share < 1.0:
        raise DataError(f"data.train_share = {task.data.train_share:g} leaves no record to train on; give a larger one")
    unknown = _encode("valid", valid, columns, folder, say, spread)[0] if valid else None
    return Prepared(
        tokenizer,
        labels,
        task.make_batches(known, tokenizer, [corpus.weight for corpus in train]),
        None if unknown is None else task.make_batches(unknown, tokenizer),
        {"train": known} | ({} if unknown is None else {"valid": unknown}),
        fingerprint,
        _find_seen(task, learned, labels, known, tokenizer, base),
    )


def _find_seen(
    task: Task,
    train: Sequence[Corpus | Subset],
    labels: tuple[str, ...],
    records: Records,
    tokenizer: Tokenizer,
    base: Path,
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
    if find_files(path):
        return Tokenizer.load(path)
    if task.init is not None:
        tokenizer = _take_over(task, Tokenizer.load(base / task.init / "tokenizer.json"))
    elif isinstance(task.tokenizer, TokenizerPair):
        source, target = (
            _learn(task, getattr(task.tokenizer, side), corpora, base, say, side) for side in ("source", "target")
        )
        tokenizer = source.with_target(target)
    else:
        tokenizer = _learn(task, task.tokenizer, corpora, base, say)
    if tokenizer.target is not tokenizer and "target" not in task.frames():
        raise ConfigError(
            "tokenizer.path: there is a tokeniser of sources and one of targets, but this task has no targets; "
            "name the file of one of them"
        )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(path)
    return tokenizer


def _take_over(task: Task, found: Tokenizer) -> Tokenizer:
    """The tokeniser of a run to start from; without targets, the one that belongs to the stack that is taken over."""
    if "target" in task.frames():
        return found
    return found.without_target() if "encoder" in type(task.model).model_fields else found.target


def _learn(
    task: Task, kind: TokenizerConfig, corpora: Sequence[Corpus], base: Path, say: Say, side: str | None = None
) -> Tokenizer:
    """A tokeniser of the training texts, or of one side of them."""
    say(f"learning the tokeniser{'' if side is None else f' of {side}s'}")
    if isinstance(kind, TokenizerFile):
        kind = kind.model_copy(update={"path": str(base / kind.path)})  # as every name in a configuration
    columns = () if side is None else (side,)
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        texts = (text for corpus in corpora for example in corpus for text in task.read_texts(example, columns))
        tokenizer = Tokenizer.train(texts, kind)
    for notice in noticed:
        say(str(notice.message))
    if tokenizer.vocab_size <= len({id for id in astuple(tokenizer.roles) if id is not None}):
        raise DataError(
            "the text gives no token but the special ones; lower tokenizer.min_frequency, or give more text"
        )
    return tokenizer


def _encode(
    split: str,
    corpora: Sequence[Corpus | Subset],
    columns: Mapping[str, Column],
    folder: Path,
    say: Say,
    spread: Spread | None,
) -> tuple[Records, str]:
    folders = [folder / "data" / f"{split}-{number}" for number in range(len(corpora))]
    digest = hashlib.sha256()
    for corpus, target in zip(corpora, folders, strict=True):
        say(f"encoding the {split} data")
        manifest = encode_corpus(corpus, columns, target, spread).manifest
        digest.update(repr([shard.sha256 for shard in manifest.shards]).encode())
    return Records(folders), digest.hexdigest()
