"""How the values of a record become numbers: texts become token ids, labels and tags their index in a list."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from seqloom.data.examples import Chunk
from seqloom.data.formats import describe_counts, read_alignment
from seqloom.data.shards import Ragged
from seqloom.errors import DataError
from seqloom.text import Tokenizer
from seqloom.text.tokenizer import group_by_word

_CALL_CHARACTERS = 1 << 21  # a tokeniser holds about 200 bytes for each token until a call returns


class Column(Protocol):
    """Encodes the values of one role as numbers."""

    @property
    def fingerprint(self) -> str:
        """A string that differs whenever the numbers could."""

    def encode(self, role: str, chunk: Chunk) -> dict[str, Ragged]:
        """Return one or more columns of numbers, with a row for each record."""


@dataclass(frozen=True)
class TextColumn:
    """A text as its token ids."""

    tokenizer: Tokenizer

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the tokeniser."""
        return f"text {self.tokenizer.fingerprint}"

    def encode(self, role: str, chunk: Chunk) -> dict[str, Ragged]:
        """Return the ids under the name of the role."""
        texts = _get_texts(chunk, role)
        try:
            parts = [self.tokenizer.encode_end_to_end(part) for part in cut_calls(texts)]
        except DataError:
            for index, text in enumerate(texts):
                with _at(chunk, index):
                    self.tokenizer.encode_batch([text])
            raise
        return {role: Ragged.chain(parts, _smallest_dtype(self.tokenizer.vocab_size))}


@dataclass(frozen=True)
class TaggedColumn:
    """Words as `words` (ids), `first` (the index of each word's first id) and `tags` (the number of each tag)."""

    tokenizer: Tokenizer
    tags: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the tokeniser, and the tags."""
        return f"tagged {self.tokenizer.fingerprint} {self.tags!r}"

    def encode(self, role: str, chunk: Chunk) -> dict[str, Ragged]:
        """Return three columns; a sentence must have as many tags as words."""
        numbers = {tag: number for number, tag in enumerate(self.tags)}
        ids, first, tags = [], [], []
        for index, (words, named) in enumerate(zip(chunk.columns[role], chunk.columns["tags"], strict=True)):
            with _at(chunk, index):
                if len(words) != len(named):
                    raise DataError(describe_counts(len(words), len(named)))
                word_ids, word_starts = self.tokenizer.encode_words(words)
                ids.append(word_ids)
                first.append(word_starts)
                tags.append([_find_number(numbers, tag, "tag") for tag in named])
        return {
            role: Ragged.join(ids, _smallest_dtype(self.tokenizer.vocab_size)),
            "first": Ragged.join(first, np.dtype(np.uint32)),
            "tags": Ragged.join(tags, _smallest_dtype(len(self.tags))),
        }


@dataclass(frozen=True)
class LabelColumn:
    """A label as its index among the known labels."""

    labels: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """The labels in order."""
        return f"label {self.labels!r}"

    def encode(self, role: str, chunk: Chunk) -> dict[str, Ragged]:
        """Return one number for each record."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        rows = _convert(chunk, role, lambda label: _find_number(numbers, label, "label"))
        return {role: Ragged.join(rows, _smallest_dtype(len(self.labels)))}


@dataclass(frozen=True)
class NumberColumn:
    """A label that is a quantity, such as a similarity."""

    fingerprint: str = "number"

    def encode(self, role: str, chunk: Chunk) -> dict[str, Ragged]:
        """Return one quantity for each record."""
        return {role: Ragged.join(_convert(chunk, role, _read_number), np.dtype(np.float32))}


@dataclass(frozen=True)
class AlignmentColumn:
    """An alignment as the tokens it links: source, target, source, target, …; empty if a corpus has no alignments."""

    tokenizer: Tokenizer

    @property
    def fingerprint(self) -> str:
        """The fingerprints of the tokenisers."""
        used = dict.fromkeys((self.tokenizer.fingerprint, self.tokenizer.target.fingerprint))
        return f"alignment {' '.join(used)}"

    def encode(self, role: str, chunk: Chunk) -> dict[str, Ragged]:
        """Pair every token of a source word with every token of the target words aligned to it."""
        rows: list[list[int]] = [[] for _ in chunk.lines]
        texts = (chunk.columns.get(side, ()) for side in ("source", "target", role))
        for row, source, target, alignment in zip(rows, *texts, strict=False):
            left, right = (
                group_by_word(str(text), tokenizer.encode(str(text)).offsets)
                for tokenizer, text in ((self.tokenizer, source), (self.tokenizer.target, target))
            )
            for one, other in sorted(set(read_alignment(str(alignment)))):
                row += (token for s in left[one] for t in right[other] for token in (s, t))
        return {role: Ragged.join(rows, np.dtype(np.uint32))}


def _get_texts(chunk: Chunk, role: str) -> list[str]:
    if role not in chunk.columns:
        raise DataError(f"{chunk.path}:{chunk.lines[0]}: the record has no {role}")
    return cast("list[str]", chunk.columns[role])


def cut_calls(texts: Sequence[str]) -> Iterator[list[str]]:
    """Divide texts into calls that keep every thread busy and need little memory."""
    part: list[str] = []
    characters = 0
    for text in texts:
        part.append(text)
        characters += len(text)
        if characters >= _CALL_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part


def _convert(chunk: Chunk, role: str, convert: Callable[[str], float]) -> list[list[float]]:
    rows = []
    for index, text in enumerate(_get_texts(chunk, role)):
        with _at(chunk, index):
            rows.append([convert(text)])
    return rows


def _find_number(numbers: Mapping[str, int], name: str, kind: str) -> int:
    if name not in numbers:
        raise DataError(
            f'the {kind} "{name}" is not one of the {len(numbers)} in the training data; `seqloom check` lists them'
        )
    return numbers[name]


def _read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f'the label "{text}" is not a number') from None


@contextmanager
def _at(chunk: Chunk, index: int) -> Iterator[None]:
    """Put the place of a record before the message of its error."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{chunk.path}:{chunk.lines[index]}: {error}") from None


def _smallest_dtype(size: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if size <= 1 << 16 else np.uint32)
