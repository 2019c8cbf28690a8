"""What training will do with the records, found out by preparing them as training does: nothing here decides it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqloom.config.tokenizer import TokenizerFile
from seqloom.data.corpus import Corpus, Split, open_split
from seqloom.data.doctor.report import Rehearsal, TokenLengths, TreatedRecords
from seqloom.data.examples import Chunk, Example
from seqloom.data.files import STDIN
from seqloom.data.order import LARGEST_BATCH
from seqloom.data.shards import Records
from seqloom.tasks import Config, Task
from seqloom.training.prepare import Prepared, Say, make_batches

FIRST_RECORDS = 10_000
"""How many records of each corpus are prepared where there is much data."""
MUCH_DATA = 1 << 28
"""Bytes of training and validation data from which not all of it is prepared."""

_SPLITS: tuple[Split, ...] = ("train", "valid")


@dataclass(frozen=True)
class _Beginning:
    """The first records of a corpus."""

    corpus: Corpus
    weight: float

    def files(self) -> list[str]:
        """None to recognise it by: it is not kept."""
        return []

    def chunks(self) -> Iterator[Chunk]:
        """Chunks up to the last record that is taken."""
        left = FIRST_RECORDS
        for chunk in self.corpus.chunks():
            yield chunk.select([number < left for number in range(len(chunk))])
            left -= len(chunk)
            if left <= 0:
                return

    def __iter__(self) -> Iterator[Example]:
        for chunk in self.chunks():
            yield from chunk.examples()


def reads_stdin(config: Config, base: Path) -> bool:
    """Whether some data comes from standard input, which can be read only once."""
    return STDIN in _list_files(config, base)


def is_much(config: Config, base: Path) -> bool:
    """Whether there is too much data to prepare all of it here."""
    return sum(Path(file).stat().st_size for file in _list_files(config, base) if Path(file).is_file()) > MUCH_DATA


def prepare_here(task: Task, base: Path, folder: Path, say: Say) -> Prepared:
    """Make the batches that training will make, in `folder`; of much data, only those of the first records."""
    much = is_much(task, base)
    splits = ((_Beginning(c, c.weight) if much else c for c in open_split(task.data, s, base)) for s in _SPLITS)
    train, valid = (list(corpora) for corpora in splits)
    if much and task.batch.tokens is None:  # as large as they get, which the first records do not show
        task = task.model_copy(update={"batch": task.batch.model_copy(update={"tokens": LARGEST_BATCH})})
    return make_batches(task, train, valid, base, folder, say)  # type: ignore[arg-type]


def rehearse(task: Task, base: Path, folder: Path, say: Say) -> Rehearsal:
    """Prepare the data in `folder` and say how long its records are, and which are left out, cut or split."""
    prepared = prepare_here(task, base, folder, say)
    tokenizer, kinds = prepared.tokenizer, [getattr(task.tokenizer, role, task.tokenizer) for role in task.frames()]
    given = task.init is not None or all(isinstance(kind, TokenizerFile) for kind in kinds)
    return Rehearsal(
        tokenizer="the tokeniser of the configuration" if given else "a tokeniser learned here as training learns it",
        vocabulary=tokenizer.vocab_size,
        target_vocabulary=None if tokenizer.target is tokenizer else tokenizer.target.vocab_size,
        first_records=FIRST_RECORDS if is_much(task, base) else None,
        lengths={
            split: {role: _summarise(records, role) for role in task.frames()}
            for split, records in prepared.records.items()
        },
        batches=prepared.train.order.describe_batches(),
        treated=tuple(
            TreatedRecords(split=found.split, what=found.what, count=len(found), places=tuple(found.places))
            for found in prepared.treated
        ),
    )


def _list_files(config: Config, base: Path) -> list[str]:
    return [file for split in _SPLITS for corpus in open_split(config.data, split, base) for file in corpus.files()]


def _summarise(records: Records, role: str) -> TokenLengths:
    lengths = np.sort(records.measure(role))
    middle, high = (int(lengths[int(share * (len(lengths) - 1))]) for share in (0.5, 0.95))
    return TokenLengths(
        tokens=int(lengths.sum()),
        mean=round(float(lengths.mean()), 2),
        median=middle,
        high=high,
        longest=int(lengths[-1]),
    )
