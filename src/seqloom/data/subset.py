"""A random share of a corpus, for a curve over the size of the data.

A record is taken where its hash, as a number between 0 and 1, is below the share. So the choice depends on the seed and
the record alone, and a larger share contains every smaller one of the same seed: what is added to the data is the only
difference. Equal records are taken or left together. Running text is taken in runs of consecutive lines, so that
context stays together.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.config.data import Data
from seqloom.data.corpus import FORMATS, RUN, Corpus
from seqloom.data.examples import Chunk, Example, raise_unreadable


@dataclass(frozen=True, slots=True)
class Subset:
    """A share of the records of a corpus, chosen by a seed."""

    corpus: Corpus
    share: float
    seed: int
    running_text: bool

    @property
    def weight(self) -> float:
        """How often an epoch sees each record."""
        return self.corpus.weight

    def files(self) -> list[str]:
        """Every file of the corpus that exists."""
        return self.corpus.files()

    def chunks(self) -> Iterator[Chunk]:
        """The records that are taken, and all faults."""
        for chunk in self.corpus.chunks():
            yield chunk.select([self._takes(key) for key in self._list_keys(chunk)])

    def __iter__(self) -> Iterator[Example]:
        for chunk in self.chunks():
            raise_unreadable(chunk.faults)
            yield from chunk.examples()

    def _list_keys(self, chunk: Chunk) -> Iterator[object]:
        """What says of each record whether it is taken."""
        if self.running_text:
            return ((Path(chunk.path).name, (line - 1) // RUN) for line in chunk.lines)
        return iter(zip(*chunk.columns.values(), strict=True))

    def _takes(self, key: object) -> bool:
        digest = hashlib.blake2b(repr((self.seed, key)).encode(), digest_size=8).digest()
        return int.from_bytes(digest) < self.share * 2**64


def choose_share(data: Data, corpora: Sequence[Corpus], seed: int) -> Sequence[Corpus | Subset]:
    """The training corpora, or the share of each that `data.train_share` says."""
    if data.train_share == 1.0:
        return corpora
    return [
        Subset(corpus, data.train_share, seed, FORMATS[section.format].running_text)
        for corpus, section in zip(corpora, data.train, strict=True)
    ]
