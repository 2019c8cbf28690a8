"""From text to word vectors: count the words, write the text as ids to a temporary file, then train on the ids.

The file is memory-mapped, so the text may be larger than memory; only the count of every distinct word must fit. The
random numbers of each piece of text depend on (seed, epoch, piece) alone.
"""

import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import torch

from seqloom.errors import DataError
from seqloom.models.word_vectors import WordVectors
from seqloom.tasks.word_vectors import WordVectorsConfig
from seqloom.training.skip_gram import Ids, SkipGram

PIECE = 1 << 17
"""Words that are trained on at a time."""

Sentences = Callable[[], Iterable[Sequence[str]]]
"""Returns the text from its start, as sentences split into words. It is called twice: to count, and to write ids."""


@dataclass(frozen=True, slots=True)
class WordVectorsProgress:
    """How far the training has come."""

    phase: Literal["counted", "written", "training"]
    vocabulary: int
    """Words that get a vector."""
    rare: int
    """Words of the text, repetitions included, that are too rare to get one and are left out."""
    done: int = 0
    """Words seen so far, over all epochs."""
    total: int = 0
    """Words to see, over all epochs."""
    learning_rate: float = 0.0
    loss: float = 0.0
    """Negative log-likelihood of a pair and its noise words, measured before the update."""


def train_word_vectors(
    config: WordVectorsConfig, sentences: Sentences, on_progress: Callable[[WordVectorsProgress], None] | None = None
) -> WordVectors:
    """Vectors for all words that are frequent enough, the most frequent first."""
    report = on_progress or (lambda _: None)
    words, counts, rare = _count_words(sentences(), config.min_count)
    report(WordVectorsProgress("counted", len(words), rare))
    with _write_ids(sentences(), words) as ids, _one_thread():
        report(WordVectorsProgress("written", len(words), rare))
        model = SkipGram(counts, config)
        pieces = range(0, len(ids), PIECE)
        done, total = 0, config.epochs * len(ids)
        for epoch in range(config.epochs):
            for piece, start in enumerate(pieces):
                text = ids[start : start + PIECE]
                before, done = done, done + len(text)
                first, last = (config.learning_rate * (1 - place / total) for place in (before, done))
                random = np.random.default_rng([config.seed, epoch, piece])
                loss = model.train(text, (first, last), random)
                report(WordVectorsProgress("training", len(words), rare, done, total, last, loss))
    return WordVectors(words, model.input)


def _count_words(sentences: Iterable[Sequence[str]], min_count: int) -> tuple[list[str], np.ndarray, int]:
    """The frequent words, their counts, and how many words of the text are not among them."""
    counter = Counter(chain.from_iterable(sentences))
    # Equally frequent words are sorted by name, so that the order of the files does not matter.
    frequent = sorted(((-n, word) for word, n in counter.items() if n >= min_count))
    if not frequent:
        most = max(counter.values(), default=0)
        raise DataError(
            f"no word occurs {min_count} times or more among {counter.total()} words (the most frequent one: {most} "
            "times); give more text or lower min_count"
        )
    counts = np.array([-n for n, _ in frequent], dtype=np.int64)
    return [word for _, word in frequent], counts, counter.total() - int(counts.sum())


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small gain little from a second thread, and lose tenfold where other programs use the cores.

    One thread also gives the same vectors on any number of cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _write_ids(sentences: Iterable[Sequence[str]], words: Sequence[str]) -> Iterator[Ids]:
    """The text as ids, -1 after each sentence, for as long as the context lasts."""
    index = {word: number for number, word in enumerate(words)}
    buffer, pairs = array("i"), 0
    with tempfile.TemporaryFile(prefix="seqloom-words-") as file:
        for sentence in sentences:
            known = [index[word] for word in sentence if word in index]
            pairs += len(known) > 1
            buffer.extend(known)
            buffer.append(-1)
            if len(buffer) >= PIECE:
                buffer.tofile(file)
                del buffer[:]
        if not pairs:
            raise DataError(
                "no sentence holds two words with a vector, so no word has a neighbour to predict; "
                "give running text, one sentence or paragraph per line"
            )
        buffer.tofile(file)
        file.flush()
        yield np.memmap(file, dtype=np.int32, mode="r")
