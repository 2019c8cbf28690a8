"""Rows of plain text that are not one record each: packed documents, and windows over a running text.

Packing is best-fit-decreasing bin packing, over the histogram of lengths. Longest first, each piece goes into the
fullest row that still has room for it. Pieces of one length are alike, so whole groups of rows are filled at once: the
work depends on the row length, not on the number of documents. Krell et al. 2021, "Efficient sequence packing without
cross-contamination". Windows are how generative language models are trained.
"""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqloom.data.noise import Stream, draw_uniform
from seqloom.data.order import Draw
from seqloom.data.rows import Frame, Spans, count_per_part, frame_spans, split_lengths
from seqloom.data.shards import Ragged, Records, expand
from seqloom.errors import DataError
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

    Which records share a row is decided once: attention does not cross them, so it changes nothing that is learned. A
    causal model needs a `lookahead` of 1: the pieces of a record then share a token, which ends one and begins the
    next, so that each is predicted once. `most` is how many tokens of a record the model has positions for: positions
    begin anew with each record of a row.
    """

    def __init__(
        self,
        records: Records,
        column: str,
        frame: Frame,
        length: int,
        pad: int,
        lookahead: int = 0,
        most: int | None = None,
    ) -> None:
        self._records, self._column, self._frame, self._pad = records, column, frame, pad
        width = length + lookahead
        lengths = records.measure(column)
        filled = np.flatnonzero(lengths)
        framed = lengths[filled] + len(frame.before) + len(frame.after)
        # Only a row's last token is not read, and it may belong to another piece; a piece that fills a row has it.
        room = width if most is None or most >= width else most - lookahead
        if room <= lookahead:
            raise DataError(f"{room} tokens in a row leave nothing to predict; raise batch.rows.length")
        pieces = split_lengths(framed, room, lookahead)
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
        source = "" if room == width else " (as many as there are positions)"
        self.treated = {
            "empty records left out": np.flatnonzero(lengths == 0),
            f"records of more than {room} tokens{source} split": filled[framed > room],
        }
        self.counts = {what: len(concerned) for what, concerned in self.treated.items()}

    def build(self, draw: Draw) -> TokenBatch:
        """Build rows with the number of each token's document, from 1; 0 is padding."""
        counts = self._offsets[draw.samples + 1] - self._offsets[draw.samples]
        pieces = self._pieces[expand(self._offsets[draw.samples], counts)]
        spans = Spans(*(part[pieces].astype(np.int64) for part in self._spans))
        ids = frame_spans(self._records, self._column, self._frame, spans)
        offsets = ids.offsets[np.concatenate([[0], np.cumsum(counts)])]
        numbers = np.repeat(expand(np.ones_like(counts), counts), np.diff(ids.offsets))
        batch, documents = Ragged(ids.values, offsets).pad(self._pad), Ragged(numbers, offsets).pad(0)
        return TokenBatch(batch.ids, batch.mask, documents.ids)


class WindowSamples:
    """All records of a corpus as one text, each in its frame, seen through windows of `length` + `lookahead` tokens.

    For training the windows of an epoch do not overlap and start at a random place that differs between epochs: every
    token is predicted once an epoch (but for less than two windows at the ends), and over the epochs with contexts of
    all lengths. Random starts, also common, would miss e⁻¹ = 37% of the tokens in an epoch. With `training` off the
    windows start at the beginning and reach the end, so that each token is scored exactly once.
    """

    def __init__(
        self,
        records: Records,
        column: str,
        frame: Frame,
        length: int,
        pad: int,
        seed: int,
        lookahead: int = 0,
        training: bool = True,
    ) -> None:
        self._records, self._column, self._frame, self._pad, self._seed = records, column, frame, pad, seed
        self._step, self._width, self._training = length, length + lookahead, training
        self._lengths, self._special = records.measure(column), len(frame.before) + len(frame.after)
        self._ends = np.cumsum(self._lengths + np.int64(self._special))
        bounds = np.concatenate([[0], self._ends])[np.cumsum([0, *records.sizes])]
        self._firsts, self._tokens = bounds[:-1], np.diff(bounds)
        if training:
            whole = (self._tokens - lookahead) // length
            windows = np.where(whole > 1, whole - 1, whole)  # the window given up leaves room to shift
        else:
            windows = -(-(self._tokens - lookahead) // length)
        if windows.min() < 1:
            raise DataError(f"a corpus has {self._tokens.min()} tokens, too few to fill one window of {self._width}")
        self.sizes: list[int] = windows.tolist()
        self._slack = np.minimum(self._tokens - windows * length - lookahead + 1, length)
        self.lengths = np.full((sum(self.sizes), 1), length, np.int32)
        outside = self._tokens - windows * length - lookahead if training else np.zeros(1, np.int64)
        self.counts = {"tokens outside the windows of an epoch": int(outside.sum())}
        self.treated: dict[str, Integers] = {}

    def build(self, draw: Draw) -> TokenBatch:
        """Build windows; only the last one of an evaluation may be shorter."""
        corpora = np.searchsorted(np.cumsum(self.sizes), draw.samples, side="right")
        within = draw.samples - (np.cumsum([0, *self.sizes]))[corpora]
        starts = self._firsts[corpora] + within * self._step
        stops = np.minimum(starts + self._width, (self._firsts + self._tokens)[corpora])
        if self._training:
            places = np.arange(len(self.sizes)) + draw.epoch * len(self.sizes)
            shifts = (draw_uniform(self._seed, Stream.PHASE, places, 1)[:, 0] * self._slack).astype(np.int64)
            starts, stops = starts + shifts[corpora], starts + shifts[corpora] + self._width
        return self._read(starts, stops).pad(self._pad)

    def _read(self, starts: Integers, stops: Integers) -> Ragged:
        """Each window is the ends of two records and all the records between."""
        first = np.searchsorted(self._ends, starts, side="right")
        counts = np.searchsorted(self._ends, stops - 1, side="right") - first + 1
        records = expand(first, counts)
        lengths = self._lengths[records].astype(np.int64)
        begins = self._ends[records] - lengths - self._special
        within = (np.repeat(edges, counts) - begins for edges in (starts, stops))
        edges = [np.clip(edge, 0, lengths + self._special) for edge in within]
        spans = Spans(records, np.zeros_like(records), lengths, *edges)
        ids = frame_spans(self._records, self._column, self._frame, spans).values
        return Ragged(ids, np.concatenate([[0], np.cumsum(stops - starts)]))
