"""Duplicates, overlap and conflicts: what only shows when the records of a split are compared.

Texts are compared by a 64-bit hash, so a record costs some thirty bytes whatever its length. Two different records of
a split of n have the same hash with probability n²/2⁶⁵: one in a hundred thousand for ten million. Of a split with more
records than `LIMIT`, the first `LIMIT` are compared.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

LIMIT = 1 << 24

Column = NDArray[np.integer[Any]]


class RecordIndex:
    """Hashes, lines and lengths of the records of a split, in order, without the blank ones."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: dict[str, list[Column]] = {}
        self._paths: list[str] = []
        self._firsts: list[int] = []

    def add(self, path: str, **columns: Column) -> None:
        """Add some records of a file: `line`; `record` and `input`, hashes; for pairs `left` and `right`, lengths."""
        room = LIMIT - self.size
        if not self._paths or self._paths[-1] != path:
            self._paths.append(path)
            self._firsts.append(self.size)
        for name, column in columns.items():
            compact: Column = column if name in ("record", "input") else column.astype(np.int32)
            self._parts.setdefault(name, []).append(compact[:room])
        self.size += min(room, len(columns["line"]))

    def column(self, name: str) -> Column:
        """One column over all records."""
        parts = self._parts.get(name, [])
        if len(parts) > 1:
            self._parts[name] = parts = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0, np.int64)

    def place(self, index: int) -> tuple[str, int]:
        """The file and line of a record."""
        return self._paths[bisect_right(self._firsts, index) - 1], int(self.column("line")[index])

    def files(self) -> Iterator[tuple[str, slice]]:
        """Each file with its part of the columns."""
        for path, (first, last) in zip(self._paths, pairwise([*self._firsts, self.size]), strict=True):
            yield path, slice(first, last)


def hash_rows(columns: Sequence[Sequence[str | tuple[str, ...]]]) -> Column:
    """A hash of each row; equal rows have equal hashes within this process."""
    rows = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
    return np.fromiter(map(hash, rows), np.int64, len(columns[0]))


def find_duplicates(hashes: Column) -> Column:
    """The indices of records that repeat an earlier one, in order."""
    ordered = np.sort(hashes)  # several times faster than argsort, and most records have no duplicate
    candidates = _find_among(hashes, ordered[1:][ordered[1:] == ordered[:-1]])
    order = np.argsort(hashes[candidates], kind="stable")
    ordered = hashes[candidates][order]
    return np.sort(candidates[order[1:][ordered[1:] == ordered[:-1]]])


def find_common(hashes: Column, known: Column) -> Column:
    """The indices of records that `known` also has."""
    return _find_among(hashes, np.sort(known))


def find_conflicts(inputs: Column, records: Column) -> Column:
    """The indices of records whose input is also that of an earlier, different record."""
    order = np.argsort(inputs, kind="stable")
    ordered = inputs[order]
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    first = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]  # the first record with this input
    return np.sort(order[records[order] != records[first]])


def find_first(hashes: Column, values: Column) -> Column:
    """The first index of each of some values, all of which are among the hashes."""
    candidates = _find_among(hashes, np.sort(values))
    order = candidates[np.argsort(hashes[candidates], kind="stable")]
    return order[np.searchsorted(hashes[order], values)]


def _find_among(hashes: Column, ordered: Column) -> Column:
    """The indices of hashes that are among some ordered ones."""
    if not len(ordered):
        return np.zeros(0, np.int64)
    nearest = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
    return np.flatnonzero(ordered[nearest] == hashes)
