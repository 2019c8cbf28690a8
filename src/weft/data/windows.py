"""A running text seen through windows of a fixed length, as generative language models are trained."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.data.noise import Stream, draw_uniform
from weft.data.order import Draw
from weft.data.rows import Frame, cut_framed, pad_rows
from weft.data.shards import Records
from weft.errors import DataError
from weft.types import TokenBatch


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
        self._length, self._width, self._training = length, length + lookahead, training
        framed = records.measure(column) + np.int64(len(frame.before) + len(frame.after))
        self._ends = np.cumsum(framed)
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
        starts = self._firsts[corpora] + within * self._length
        stops = np.minimum(starts + self._width, (self._firsts + self._tokens)[corpora])
        if self._training:
            places = np.arange(len(self.sizes)) + draw.epoch * len(self.sizes)
            shifts = (draw_uniform(self._seed, Stream.PHASE, places, 1)[:, 0] * self._slack).astype(np.int64)
            starts, stops = starts + shifts[corpora], starts + shifts[corpora] + self._width
        return pad_rows([self._read(*ends) for ends in zip(starts.tolist(), stops.tolist(), strict=True)], self._pad)

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right")
        parts = []
        begin = int(self._ends[first - 1]) if first else 0
        for ids in self._records.gather(self._column, np.arange(first, last + 1)):
            parts += cut_framed(ids, self._frame, start - begin, stop - begin)
            begin += len(self._frame.before) + len(ids) + len(self._frame.after)
        return np.concatenate(parts)
