"""Records -> rows of tokens: special tokens are added, and records that are too long are dropped, cut or split."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqloom.data.order import Draw
from seqloom.data.shards import Ragged, Records, expand
from seqloom.errors import DataError
from seqloom.types import TokenBatch

Integers = NDArray[np.int64]
Over = Literal["drop", "cut", "split", "refuse"]


class Frame(NamedTuple):
    """The ids that stand before and after a text."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


Template = Mapping[str, Frame]
"""The columns that make up a row, in order, each in its frame: `{text: ([CLS], [SEP]), second: ((), [SEP])}`."""

Segment = Callable[[list[int], int], list[int]]
"""(token ids, random number) -> another segmentation of the same text: sub-word regularisation during training."""

AS_ENCODED: Mapping[str, Segment] = MappingProxyType({})
"""Every column keeps the segmentation it was encoded with."""


class Limit(NamedTuple):
    """The most tokens a row may have, special tokens included, and what to do with a longer record."""

    length: int
    over: Over
    positions: tuple[int | None, ...] = ()
    """For each row of a sample (the last counts for those that follow), the most tokens that the model has positions
    for; None is any number."""

    def measure(self, side: int) -> int:
        """The most tokens of a row."""
        most = self.positions[min(side, len(self.positions) - 1)] if self.positions else None
        return self.length if most is None else min(self.length, most)

    def describe(self, sides: int) -> str:
        """The same in words, and where the number comes from."""
        lengths = list(dict.fromkeys(self.measure(side) for side in range(sides)))
        source = "" if max(lengths) == min(lengths) == self.length else " (as many as there are positions)"
        return " or ".join(map(str, lengths)) + " tokens" + source


class Spans(NamedTuple):
    """Parts of framed texts.

    A text is the `lengths` tokens of a record after its first `skips`. A span is the range [starts, stops) of that
    text together with the special tokens around it.
    """

    records: Integers
    skips: Integers
    lengths: Integers
    starts: Integers
    stops: Integers


def frame_spans(records: Records, column: str, frame: Frame, spans: Spans) -> Ragged:
    """The token ids of some spans."""
    before = len(frame.before)
    sizes = spans.stops - spans.starts
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    first, last = (np.clip(edges - before, 0, spans.lengths) for edges in (spans.starts, spans.stops))
    ids = np.empty(offsets[-1], np.int64)
    text = records.gather(column, spans.records, spans.skips + first, last - first)
    ids[expand(offsets[:-1] + np.maximum(before - spans.starts, 0), last - first)] = text
    positions = [*range(before), *(before + spans.lengths + index for index in range(len(frame.after)))]
    for position, id in zip(positions, frame.before + frame.after, strict=True):
        inside = (spans.starts <= position) & (position < spans.stops)
        ids[(offsets[:-1] + position - spans.starts)[inside]] = id
    return Ragged(ids, offsets)


def join_columns(parts: Sequence[Ragged]) -> Ragged:
    """Concatenate row i of every part."""
    if len(parts) == 1:
        return parts[0]
    sizes = np.stack([np.diff(part.offsets) for part in parts])
    offsets = np.concatenate([[0], np.cumsum(sizes.sum(axis=0))])
    ids, starts = np.empty(offsets[-1], np.int64), offsets[:-1]
    for part, size in zip(parts, sizes, strict=True):
        ids[expand(starts, size)] = part.values
        starts = starts + size
    return Ragged(ids, offsets)


class RecordRows:
    """Samples of one record (or a piece of one), with a row for each template: one row, or a source and a target.

    `treated` says which records were left out or changed, by what was done. `segment` gives some columns another
    segmentation each time a sample is drawn; `lengths` are those of the usual one.
    """

    def __init__(
        self,
        records: Records,
        templates: Sequence[Template],
        limit: Limit,
        pad: int,
        segment: Mapping[str, Segment] = AS_ENCODED,
    ) -> None:
        self._records, self._templates, self._segment = records, templates, segment
        self._pads = [pad] * len(templates)
        measured = [np.stack([records.measure(column) for column in template], axis=1) for template in templates]
        special = [sum(len(ids) for frame in template.values() for ids in frame) for template in templates]
        self._rooms = [limit.measure(side) - count for side, count in enumerate(special)]
        self._chosen, self.skips, self._takes, self.treated = _choose(measured, self._rooms, limit, records)
        self.counts = {what: len(concerned) for what, concerned in self.treated.items()}
        # Every process of a training holds these of all records, so each number has 32 bits and no copy is made.
        self.lengths = np.empty((len(self._chosen), len(templates)), np.int32)
        for side, takes in enumerate(self._takes):
            np.add(takes.sum(axis=1, dtype=np.int32), special[side], out=self.lengths[:, side])
        self.sizes = count_per_part(self._chosen, records.sizes)

    def find_records(self, draw: Draw) -> Integers:
        """The record of each sample."""
        return self._chosen[draw.samples]

    def gather(self, column: str, draw: Draw, lengths: Integers) -> NDArray[Any]:
        """Read another column of the same records, given the length of each row."""
        return self._records.gather(column, self.find_records(draw), np.zeros_like(lengths), lengths)

    def build_rows(self, draw: Draw, side: int = 0) -> TokenBatch:
        """Build the padded rows of some samples."""
        parts = []
        for place, (column, frame) in enumerate(self._templates[side].items()):
            skips = self.skips[draw.samples].astype(np.int64)
            lengths = self._takes[side][draw.samples, place].astype(np.int64)
            whole = lengths + len(frame.before) + len(frame.after)
            spans = Spans(self.find_records(draw), skips, lengths, np.zeros_like(whole), whole)
            part = frame_spans(self._records, column, frame, spans)
            if segment := self._segment.get(column):
                spare = self._rooms[side] - self._takes[side][draw.samples].sum(axis=1)
                part = _segment_rows(part, frame, segment, draw.keys * 2 + side, spare // len(self._templates[side]))
            parts.append(part)
        return join_columns(parts).pad(self._pads[side])


def _segment_rows(rows: Ragged, frame: Frame, segment: Segment, numbers: Integers, spare: Integers) -> Ragged:
    """Segment the rows again, except those that would grow by more than their spare tokens."""
    segmented = []
    for number, extra, (start, stop) in zip(numbers.tolist(), spare, pairwise(rows.offsets), strict=True):
        ids = rows.values[start + len(frame.before) : stop - len(frame.after)].tolist()
        other = segment(ids, number)
        segmented.append([*frame.before, *(other if len(other) <= len(ids) + extra else ids), *frame.after])
    return Ragged.join(segmented, np.dtype(np.int64))


class _Choice(NamedTuple):
    records: Integers
    skips: NDArray[np.int32]
    takes: list[NDArray[np.int32]]
    """For each template, the number of tokens a sample takes from each column."""
    treated: dict[str, Integers]


def _choose(measured: Sequence[NDArray[np.int32]], rooms: Sequence[int], limit: Limit, records: Records) -> _Choice:
    most = limit.describe(len(rooms))
    if min(rooms) < 1:
        shortest = min(limit.measure(side) for side in range(len(rooms)))
        name = "max_length" if shortest == limit.length else "positions.table"
        raise DataError(f"{name} = {shortest} leaves no room for text beside the special tokens; raise it")
    empty = np.any([(lengths == 0).any(axis=1) for lengths in measured], axis=0)
    long = np.any([lengths.sum(axis=1) > room for lengths, room in zip(measured, rooms, strict=True)], axis=0) & ~empty
    treated = {"empty records left out": np.flatnonzero(empty)}
    if limit.over == "refuse":
        if long.any():
            raise DataError(
                f"{records.locate(int(long.argmax()))}: the record has more than max_length = {most},"
                f' one of {long.sum()} such records; raise max_length, or set over = "cut" or "drop"'
            )
    else:
        done = "left out" if limit.over == "drop" else limit.over
        treated[f"records of more than {most} {done}"] = np.flatnonzero(long)
    kept = np.flatnonzero(~empty & ~long if limit.over == "drop" else ~empty)
    if limit.over == "split":
        pieces = split_lengths(measured[0][kept, 0], rooms[0])
        return _Choice(kept[pieces.owners], pieces.starts, [pieces.lengths[:, None]], treated)
    takes = [_fit(lengths[kept], room) for lengths, room in zip(measured, rooms, strict=True)]
    return _Choice(kept, np.zeros(len(kept), np.int32), takes, treated)


def _fit(lengths: NDArray[np.int32], room: int) -> NDArray[np.int32]:
    """Cut texts that exceed the room, the longer of two first: a short one stays whole beside a long one."""
    fitted = np.minimum(lengths, room)
    if lengths.shape[1] == 2:
        fitted[:, 1] = np.minimum(lengths[:, 1], np.maximum(room - lengths[:, 0], room // 2))
        fitted[:, 0] = np.minimum(lengths[:, 0], room - fitted[:, 1])
    return fitted


class Pieces(NamedTuple):
    """Pieces of records: the index of the record, the start and the length of each piece."""

    owners: Integers
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]


def split_lengths(lengths: NDArray[np.int32], room: int, overlap: int = 0) -> Pieces:
    """Cut each length into pieces of `room`; the last piece is the rest."""
    counts = np.maximum(1, -(-(lengths - overlap) // (room - overlap)))
    owners = np.repeat(np.arange(len(lengths)), counts)
    starts = (expand(np.zeros_like(counts), counts) * (room - overlap)).astype(np.int32)
    return Pieces(owners, starts, np.minimum(lengths[owners] - starts, room))


def count_per_part(records: Integers, sizes: Sequence[int]) -> list[int]:
    """How many of these records, in ascending order, are in each of several consecutive parts of the given sizes."""
    edges: list[int] = np.searchsorted(records, np.cumsum([0, *sizes])).tolist()
    return [stop - start for start, stop in pairwise(edges)]
