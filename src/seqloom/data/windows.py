"""A running text seen through windows of a fixed length, as generative language models are trained."""

import numpy as np
from numpy.typing import NDArray

from seqloom.data.noise import Stream, draw_uniform
from seqloom.data.order import Draw
from seqloom.data.rows import Frame, Spans, frame_spans, pad_rows
from seqloom.data.shards import Ragged, Records, expand
from seqloom.errors import DataError
from seqloom.types import TokenBatch

Integers = NDArray[np.int64]


class WindowSamples:
    """All records of a corpus as one text, each in its frame, seen through windows of `length` + `lookahead` tokens.

    For training the windows of an epoch do not overlap and start at a random place that differs between epochs: every
    token is predicted once an epoch (but for less than two windows at the ends), and over the epochs with contexts of
    all lengths. Random starts, the other custom, would miss e⁻¹ = 37% of the tokens in an epoch. With `training` off
    the windows start at the beginning and reach the end, so that each token is judged exactly once.
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
            raise DataError(f"a corpus of {self._tokens.min()} tokens does not fill one window of {self._width}")
        self.sizes: list[int] = windows.tolist()
        self._slack = np.minimum(self._tokens - windows * length - lookahead + 1, length)
        self.lengths = np.full((sum(self.sizes), 1), length, np.int32)
        outside = self._tokens - windows * length - lookahead if training else np.zeros(1, np.int64)
        self.counts = {"tokens outside the windows, other ones each epoch": int(outside.sum())}

    def build(self, draw: Draw) -> TokenBatch:
        """Windows; only the last one of an evaluation may be shorter."""
        corpora = np.searchsorted(np.cumsum(self.sizes), draw.samples, side="right")
        within = draw.samples - (np.cumsum([0, *self.sizes]))[corpora]
        starts = self._firsts[corpora] + within * self._step
        stops = np.minimum(starts + self._width, (self._firsts + self._tokens)[corpora])
        if self._training:
            places = np.arange(len(self.sizes)) + draw.epoch * len(self.sizes)
            shifts = (draw_uniform(self._seed, Stream.PHASE, places, 1)[:, 0] * self._slack).astype(np.int64)
            starts, stops = starts + shifts[corpora], starts + shifts[corpora] + self._width
        return pad_rows([self._read(starts, stops)], self._pad)

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
