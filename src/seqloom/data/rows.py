"""From records to rows of tokens: special tokens around them, and what happens to a record that is too long."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, assert_never

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
"""Another segmentation of the same text, chosen by a number: sub-word regularisation, while a model trains."""

AS_ENCODED: Mapping[str, Segment] = MappingProxyType({})
"""Every column keeps the segmentation it was encoded with."""


class Limit(NamedTuple):
    """The most tokens a row may have, special tokens included, and what is done with more."""

    length: int
    over: Over


class Spans(NamedTuple):
    """Parts of texts in their frames.

    Of each record, `lengths` tokens from `skips` on are the text; of that text between its special tokens, the span is
    [starts, stops).
    """

    records: Integers
    skips: Integers
    lengths: Integers
    starts: Integers
    stops: Integers


def frame_spans(records: Records, column: str, frame: Frame, spans: Spans) -> Ragged:
    """The ids of some spans."""
    before = len(frame.before)
    sizes = spans.stops - spans.starts
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    first, last = (np.clip(edges - before, 0, spans.lengths) for edges in (spans.starts, spans.stops))
    ids = np.empty(offsets[-1], np.int64)
    text = records.gather(column, spans.records, spans.skips + first, last - first)
    ids[expand(offsets[:-1] + np.maximum(before - spans.starts, 0), last - first)] = text
    places = [*range(before), *(before + spans.lengths + place for place in range(len(frame.after)))]
    for place, id in zip(places, frame.before + frame.after, strict=True):
        inside = (spans.starts <= place) & (place < spans.stops)
        ids[(offsets[:-1] + place - spans.starts)[inside]] = id
    return Ragged(ids, offsets)


def join_columns(parts: Sequence[Ragged]) -> Ragged:
    """Row i of each part, one after the other."""
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
    """Samples of one record each, with a row for each template: one, or a source and a target.

    `counts` says how many records were left out or changed, by reason. `segment` gives some columns another
    segmentation each time a sample is drawn; lengths are those of the usual one.
    """

    def __init__(
        self,
        records: Records,
        templates: Sequence[Template],
        limit: Limit,
        pad: int,
        segment: Mapping[str, Segment] = AS_ENCODED,
    ) -> None:
        self._records, self._templates, self._pad, self._segment = records, templates, pad, segment
        measured = [np.stack([records.measure(column) for column in template], axis=1) for template in templates]
        special = [sum(len(ids) for frame in template.values() for ids in frame) for template in templates]
        self._rooms = [limit.length - count for count in special]
        self._chosen, self._skips, self._takes, self.counts = _choose(measured, self._rooms, limit, records)
        self.lengths = np.stack([takes.sum(axis=1) for takes in self._takes], axis=1) + np.array(special)
        self.sizes = count_per_part(self._chosen, records.sizes)

    def find_records(self, draw: Draw) -> Integers:
        """The record of each sample."""
        return self._chosen[draw.samples]

    def gather(self, column: str, draw: Draw, lengths: Integers) -> NDArray[Any]:
        """Another column of the same records, whose rows have these lengths."""
        return self._records.gather(column, self.find_records(draw), np.zeros_like(lengths), lengths)

    def build_rows(self, draw: Draw, side: int = 0) -> TokenBatch:
        """The rows of some samples, padded."""
        parts = []
        for place, (column, frame) in enumerate(self._templates[side].items()):
            skips, lengths = (
                part[draw.samples].astype(np.int64) for part in (self._skips, self._takes[side][:, place])
            )
            whole = lengths + len(frame.before) + len(frame.after)
            spans = Spans(self.find_records(draw), skips, lengths, np.zeros_like(whole), whole)
            part = frame_spans(self._records, column, frame, spans)
            if segment := self._segment.get(column):
                spare = self._rooms[side] - self._takes[side][draw.samples].sum(axis=1)
                part = _segment_rows(part, frame, segment, draw.keys * 2 + side, spare // len(self._templates[side]))
            parts.append(part)
        return join_columns(parts).pad(self._pad)


def _segment_rows(rows: Ragged, frame: Frame, segment: Segment, numbers: Integers, spare: Integers) -> Ragged:
    """The rows in another segmentation, but for those that would grow by more than they have to spare."""
    spelled = []
    for number, extra, (start, stop) in zip(numbers.tolist(), spare, pairwise(rows.offsets), strict=True):
        ids = rows.values[start + len(frame.before) : stop - len(frame.after)].tolist()
        other = segment(ids, number)
        spelled.append([*frame.before, *(other if len(other) <= len(ids) + extra else ids), *frame.after])
    return Ragged.join(spelled, np.dtype(np.int64))


class _Choice(NamedTuple):
    records: Integers
    skips: NDArray[np.int32]
    takes: list[NDArray[np.int32]]
    """For each template, how many tokens a sample takes of each column."""
    counts: dict[str, int]


def _choose(measured: Sequence[NDArray[np.int32]], rooms: Sequence[int], limit: Limit, records: Records) -> _Choice:
    if min(rooms) < 1:
        raise DataError(f"max_length = {limit.length} leaves no room for text beside the special tokens; raise it")
    empty = np.any([(lengths == 0).any(axis=1) for lengths in measured], axis=0)
    long = np.any([lengths.sum(axis=1) > room for lengths, room in zip(measured, rooms, strict=True)], axis=0) & ~empty
    counts = {"empty records left out": int(empty.sum())}
    kept = np.flatnonzero(~empty)
    match limit.over:
        case "refuse":
            if long.any():
                place = records.locate(int(long.argmax()))
                raise DataError(
                    f"{place}: the record has more than max_length = {limit.length} tokens, one of"
                    f' {long.sum()} such records; raise max_length, or set over = "cut" or "drop"'
                )
            takes = [lengths[kept] for lengths in measured]
        case "drop":
            kept = np.flatnonzero(~empty & ~long)
            takes = [lengths[kept] for lengths in measured]
            counts[f"records of more than {limit.length} tokens left out"] = int(long.sum())
        case "cut":
            takes = [_fit(lengths[kept], room) for lengths, room in zip(measured, rooms, strict=True)]
            counts[f"records of more than {limit.length} tokens cut"] = int(long.sum())
        case "split":
            (lengths,), (room,) = measured, rooms
            pieces = split_lengths(lengths[kept, 0], room)
            counts[f"records of more than {limit.length} tokens split"] = int(long.sum())
            return _Choice(kept[pieces.owners], pieces.starts, [pieces.lengths[:, None]], counts)
        case _:
            assert_never(limit.over)
    return _Choice(kept, np.zeros(len(kept), np.int32), takes, counts)


def _fit(lengths: NDArray[np.int32], room: int) -> NDArray[np.int32]:
    """Cut the longer of two texts first: a short one stays whole beside a long one."""
    fitted = np.minimum(lengths, room)
    if lengths.shape[1] == 2:
        fitted[:, 1] = np.minimum(lengths[:, 1], np.maximum(room - lengths[:, 0], room // 2))
        fitted[:, 0] = np.minimum(lengths[:, 0], room - fitted[:, 1])
    return fitted


class Pieces(NamedTuple):
    """Parts of longer things: which one, from where, how much."""

    owners: Integers
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]


def split_lengths(lengths: NDArray[np.int32], room: int, overlap: int = 0) -> Pieces:
    """Cut each length into pieces of `room`, the last as long as what is left."""
    counts = np.maximum(1, -(-(lengths - overlap) // (room - overlap)))
    owners = np.repeat(np.arange(len(lengths)), counts)
    starts = (expand(np.zeros_like(counts), counts) * (room - overlap)).astype(np.int32)
    return Pieces(owners, starts, np.minimum(lengths[owners] - starts, room))


def count_per_part(records: Integers, sizes: Sequence[int]) -> list[int]:
    """How many of these records, in ascending order, belong to each of several consecutive parts."""
    edges: list[int] = np.searchsorted(records, np.cumsum([0, *sizes])).tolist()
    return [stop - start for start, stop in pairwise(edges)]
