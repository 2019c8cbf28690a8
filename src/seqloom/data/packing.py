"""Several documents in a row: best-fit-decreasing bin packing, over the histogram of lengths.

Longest first, each piece goes into the fullest row that still has room for it. Pieces of one length are alike, so whole
groups of rows are filled at once: the work depends on the row length, not on the number of documents. Krell et al.
2021, "Efficient sequence packing without cross-contamination".
"""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqloom.data.order import Draw
from seqloom.data.rows import Frame, Spans, count_per_part, frame_spans, pad_rows, split_lengths
from seqloom.data.shards import Ragged, Records, expand
from seqloom.types import TokenBatch

Integers = NDArray[np.int64]


class Packed(NamedTuple):
    """Row i holds pieces[offsets[i] : offsets[i + 1]]."""

    pieces: Integers
    offsets: Integers


class _Rows(NamedTuple):
    """`copies` rows with the same content: (length, how many pieces of it) …"""

    content: tuple[tuple[int, int], ...]
    copies: int


def pack(lengths: NDArray[np.integer[Any]], capacity: int) -> Packed:
    """Put pieces of the given lengths into as few rows of `capacity` as best-fit-decreasing finds."""
    by_length = np.argsort(lengths, kind="stable")
    numbers = np.bincount(lengths, minlength=capacity + 1)
    queues = dict(enumerate(np.split(by_length, np.cumsum(numbers)[:-1])))
    pieces, widths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for content, copies in _plan(numbers.tolist(), capacity):
        columns = []
        for length, repeats in content:
            taken, queues[length] = np.split(queues[length], [copies * repeats])
            columns.append(taken.reshape(copies, repeats))
        rows = np.concatenate(columns, axis=1)
        pieces.append(rows.ravel())
        widths.append(np.full(copies, rows.shape[1]))
    return Packed(np.concatenate(pieces), np.concatenate([[0], np.cumsum(np.concatenate(widths))]))


def _plan(numbers: list[int], capacity: int) -> list[_Rows]:
    """Which rows to make of numbers[L] pieces of each length L."""
    open_rows: dict[int, list[_Rows]] = defaultdict(list)  # by the room that is left
    for length in range(capacity, 0, -1):
        waiting = numbers[length]
        while waiting:
            room = min((room for room, rows in open_rows.items() if rows and room >= length), default=capacity)
            content, copies = open_rows[room].pop() if open_rows[room] else _Rows((), waiting)
            repeats = min(room // length, waiting)
            used = min(copies, waiting // repeats)
            waiting -= used * repeats
            open_rows[room - repeats * length].append(_Rows((*content, (length, repeats)), used))
            if content and used < copies:
                open_rows[room].append(_Rows(content, copies - used))
    return [rows for group in open_rows.values() for rows in group]


class PackedSamples:
    """Rows of `length` + `lookahead` tokens, filled with whole records; a longer record is split over rows.

    Which records share a row is settled once: nothing looks across them, so it changes nothing that is learned. A
    causal model needs a `lookahead` of 1: the pieces of a record then share a token, which ends one and begins the
    next, so that each is predicted once.
    """

    def __init__(self, records: Records, column: str, frame: Frame, length: int, pad: int, lookahead: int = 0) -> None:
        self._records, self._column, self._frame, self._pad = records, column, frame, pad
        width = length + lookahead
        lengths = records.measure(column)
        filled = np.flatnonzero(lengths)
        framed = lengths[filled] + len(frame.before) + len(frame.after)
        pieces = split_lengths(framed, width, lookahead)
        owners = filled[pieces.owners]
        self._spans = owners, np.zeros_like(owners), lengths[owners], pieces.starts, pieces.starts + pieces.lengths
        self._pieces, self._offsets, self.sizes = np.empty(0, np.int64), np.zeros(1, np.int64), []
        first = 0
        for size in count_per_part(owners, records.sizes):  # each corpus by itself, for the sake of its weight
            packed = pack(pieces.lengths[first : first + size], width)
            self._offsets = np.concatenate([self._offsets, self._offsets[-1] + packed.offsets[1:]])
            self._pieces = np.concatenate([self._pieces, packed.pieces + first])
            self.sizes.append(len(packed.offsets) - 1)
            first += size
        self.lengths = np.full((sum(self.sizes), 1), length, np.int32)
        self.counts = {
            "empty, left out": len(lengths) - len(filled),
            f"longer than {width} tokens, split": int((framed > width).sum()),
        }

    def build(self, draw: Draw) -> TokenBatch:
        """Rows with the number of each token's document, from 1; 0 is padding."""
        counts = self._offsets[draw.samples + 1] - self._offsets[draw.samples]
        pieces = self._pieces[expand(self._offsets[draw.samples], counts)]
        spans = Spans(*(part[pieces].astype(np.int64) for part in self._spans))
        ids = frame_spans(self._records, self._column, self._frame, spans)
        offsets = ids.offsets[np.concatenate([[0], np.cumsum(counts)])]
        numbers = np.repeat(expand(np.ones_like(counts), counts), np.diff(ids.offsets))
        batch = pad_rows([Ragged(ids.values, offsets)], self._pad)
        documents = pad_rows([Ragged(numbers, offsets)], 0)
        return TokenBatch(batch.ids, batch.mask, documents.ids)
