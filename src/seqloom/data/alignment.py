"""Which word of a source belongs to which word of its target, as word aligners write it: `0-0 1-2 2-1`, from 0."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from seqloom.data.chunk import Chunk
from seqloom.data.fault import Fault
from seqloom.data.shards import Ragged
from seqloom.text.words import find_owners

Pair = tuple[int, int]


class Spelled(Protocol):
    """The tokens of a text."""

    @property
    def offsets(self) -> Sequence[Pair]:
        """Where in the text each stands."""


class OffsetEncoder(Protocol):
    """What alignments ask of a tokeniser."""

    @property
    def fingerprint(self) -> str:
        """Differs whenever the tokens could."""

    def encode(self, text: str) -> Spelled:
        """The tokens of a text."""


def read_alignment(text: str) -> list[Pair]:
    """Pairs of (source word, target word)."""
    pairs = []
    for item in text.split():
        source, dash, target = item.partition("-")
        if not (dash and source.isdecimal() and target.isdecimal()):
            raise ValueError(f'"{item[:40]}" is no pair of words such as 0-2')
        pairs.append((int(source), int(target)))
    return pairs


def check_alignments(chunk: Chunk) -> Chunk:
    """Leave out records whose alignment cannot be read or names a word that is not there; each is a fault."""
    faults = chunk.faults.copy()
    sound = []
    for line, source, target, alignment in zip(
        chunk.lines, chunk.columns["source"], chunk.columns["target"], chunk.columns["alignment"], strict=True
    ):
        fault = _find_fault(str(source), str(target), str(alignment))
        if fault:
            faults.append(Fault("bad_alignment", chunk.paths["alignment"], line, fault))
        sound.append(not fault)
    return Chunk(chunk.path, chunk.lines, chunk.columns, faults, chunk.paths).select(sound)


def _find_fault(source: str, target: str, alignment: str) -> str:
    try:
        pairs = read_alignment(alignment)
    except ValueError as error:
        return str(error)
    for side, text, words in (("source", source, {s for s, _ in pairs}), ("target", target, {t for _, t in pairs})):
        count = len(text.split())
        if words and max(words) >= count:
            return f"names word {max(words)} of the {side}, which has {count}, counted from 0"
    return ""


@dataclass(frozen=True)
class AlignmentColumn:
    """An alignment as the tokens it joins: source, target, source, target, …; none where a corpus has no alignments."""

    tokenizer: OffsetEncoder

    @property
    def fingerprint(self) -> str:
        """That of the tokeniser."""
        return f"alignment {self.tokenizer.fingerprint}"

    def encode(self, role: str, chunk: Chunk) -> dict[str, Ragged]:
        """Every token of a source word with every token of a target word that belongs to it."""
        rows: list[list[int]] = [[] for _ in chunk.lines]
        for row, source, target, alignment in zip(
            rows, *(chunk.columns.get(side, ()) for side in ("source", "target", role)), strict=False
        ):
            tokens = [self._group(str(text)) for text in (source, target)]
            for one, other in sorted(set(read_alignment(str(alignment)))):
                row += (token for s in tokens[0][one] for t in tokens[1][other] for token in (s, t))
        return {role: Ragged.join(rows, np.dtype(np.uint32))}

    def _group(self, text: str) -> list[list[int]]:
        count, owners = find_owners(text, self.tokenizer.encode(text).offsets)
        groups: list[list[int]] = [[] for _ in range(count)]
        for token, word in owners:
            groups[word].append(token)
        return groups
