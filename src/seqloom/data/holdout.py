"""Which records are held out for validation when a corpus comes without a validation split.

The choice depends on nothing but the record (or, for running text, its place), so it is the same in every run and needs
no file. Records are chosen by a hash of their input: equal texts fall on the same side, none leaks across. Running
text is chosen in stretches of consecutive lines, spread evenly over the file, so that context is not torn apart.
"""

import hashlib
from dataclasses import dataclass
from math import floor

from seqloom.data.chunk import ANSWERS, Chunk

STRETCH = 50
"""Consecutive lines of running text that stay together."""


@dataclass(frozen=True, slots=True)
class Holdout:
    """One of the two sides of the division."""

    fraction: float
    held_out: bool
    running_text: bool

    def select(self, chunk: Chunk) -> Chunk:
        """The records on this side."""
        chosen = _stretches(chunk, self.fraction) if self.running_text else _hashed(chunk, self.fraction)
        return chunk.select([side == self.held_out for side in chosen])


def _stretches(chunk: Chunk, fraction: float) -> list[bool]:
    """Stretch s is held out where the running total fraction·s passes a whole number."""
    stretches = ((line - 1) // STRETCH for line in chunk.lines)
    return [floor((s + 1) * fraction) > floor(s * fraction) for s in stretches]


def _hashed(chunk: Chunk, fraction: float) -> list[bool]:
    limit = int(fraction * 2**64)
    inputs = [column for role, column in chunk.columns.items() if role not in ANSWERS]
    return [_hash(row) < limit for row in zip(*inputs, strict=True)]


def _hash(row: tuple[str | tuple[str, ...], ...]) -> int:
    text = "\x1e".join(value if isinstance(value, str) else "\x1f".join(value) for value in row)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
