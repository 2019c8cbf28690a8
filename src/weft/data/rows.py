"""From records to rows of tokens: special tokens around them, and what happens to a record that is too long."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, assert_never

import numpy as np
import torch
from numpy.typing import NDArray

from weft.data.shards import Records
from weft.errors import DataError
from weft.types import TokenBatch

Array = NDArray[Any]
Integers = NDArray[np.int64]
Over = Literal["drop", "cut", "split", "refuse"]


class Frame(NamedTuple):
    """The ids that stand before and after a text."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


Template = Mapping[str, Frame]
"""The columns that make up a row, in order, each in its frame: `{text: ([CLS], [SEP]), second: ((), [SEP])}`."""


class Limit(NamedTuple):
    """The most tokens a row may have, special tokens included, and what is done with more."""

    length: int
    over: Over


class RecordRows:
    """Rows made of one record each. A sample has a row for each template: one, or a source and a target.

    `counts` says how many records were left out or changed, by reason.
    """

    def __init__(self, records: Records, templates: Sequence[Template], limit: Limit) -> None:
        self._records, self._templates = records, templates
        measured = [np.stack([records.measure(column) for column in template], axis=1) for template in templates]
        rooms = [limit.length - _count_special(template) for template in templates]
        chosen = _choose(measured, rooms, limit, records)
        self._chosen, self._starts, self._takes, self.counts = chosen
        self.lengths = np.stack([takes.sum(axis=1) for takes in self._takes], axis=1) + [
            _count_special(template) for template in templates
        ]
        self.sizes = count_per_part(self._chosen, records.sizes)

    def assemble(self, samples: Integers, side: int = 0) -> list[Array]:
        """The ids of some samples' rows."""
        rows: list[list[Array]] = [[] for _ in samples]
        starts = self._starts[samples]
        for part, (column, frame) in enumerate(self._templates[side].items()):
            stops = starts + self._takes[side][samples, part]
            contents = self._records.gather(column, self._chosen[samples])
            for row, ids, start, stop in zip(rows, contents, starts, stops, strict=True):
                row += [np.array(frame.before), ids[start:stop], np.array(frame.after)]
        return [np.concatenate(row) for row in rows]

    def gather(self, column: str, samples: Integers) -> list[Array]:
        """Another column of the same records."""
        return self._records.gather(column, self._chosen[samples])


class _Choice(NamedTuple):
    records: Integers
    starts: NDArray[np.int32]
    takes: list[NDArray[np.int32]]
    """For each template, how many tokens a sample takes of each column."""
    counts: dict[str, int]


def _choose(measured: Sequence[NDArray[np.int32]], rooms: Sequence[int], limit: Limit, records: Records) -> _Choice:
    if min(rooms) < 1:
        raise DataError(f"max_length = {limit.length} leaves no room for text beside the special tokens; raise it")
    empty = np.any([(lengths == 0).any(axis=1) for lengths in measured], axis=0)
    long = np.any([lengths.sum(axis=1) > room for lengths, room in zip(measured, rooms, strict=True)], axis=0) & ~empty
    counts = {"empty, left out": int(empty.sum())}
    kept = np.flatnonzero(~empty)
    match limit.over:
        case "refuse":
            if long.any():
                place = records.locate(int(long.argmax()))
                raise DataError(
                    f"{place}: longer than max_length = {limit.length} tokens, as are {long.sum() - 1} other records; "
                    'raise max_length, or set over = "cut" or "drop"'
                )
            takes = [lengths[kept] for lengths in measured]
        case "drop":
            kept = np.flatnonzero(~empty & ~long)
            takes = [lengths[kept] for lengths in measured]
            counts[f"longer than {limit.length} tokens, left out"] = int(long.sum())
        case "cut":
            takes = [_fit(lengths[kept], room) for lengths, room in zip(measured, rooms, strict=True)]
            counts[f"longer than {limit.length} tokens, cut"] = int(long.sum())
        case "split":
            (lengths,), (room,) = measured, rooms
            pieces = split_lengths(lengths[kept, 0], room)
            counts[f"longer than {limit.length} tokens, split"] = int(long.sum())
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


def split_lengths(lengths: NDArray[np.int32], room: int) -> Pieces:
    """Cut each length into pieces of `room`, the last as long as what is left."""
    counts = -(-lengths // room)
    owners = np.repeat(np.arange(len(lengths)), counts)
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    starts = ((np.arange(len(owners)) - firsts) * room).astype(np.int32)
    return Pieces(owners, starts, np.minimum(lengths[owners] - starts, room))


def cut_framed(ids: Array, frame: Frame, start: int, stop: int) -> list[Array]:
    """The part [start, stop) of a text in its frame, without copying the text."""
    parts = []
    for part in (np.array(frame.before, np.int64), ids, np.array(frame.after, np.int64)):
        parts.append(part[max(start, 0) : max(stop, 0)])
        start, stop = start - len(part), stop - len(part)
    return parts


def count_per_part(records: Integers, sizes: Sequence[int]) -> list[int]:
    """How many of these records, in ascending order, belong to each of several consecutive parts."""
    edges: list[int] = np.searchsorted(records, np.cumsum([0, *sizes])).tolist()
    return [stop - start for start, stop in pairwise(edges)]


def pad_rows(rows: Sequence[Array], pad: int) -> TokenBatch:
    """Rows side by side, the shorter ones filled up with `pad`."""
    lengths = np.array([len(row) for row in rows], np.int64)
    mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
    return TokenBatch(torch.from_numpy(fill(mask, rows, pad)), torch.from_numpy(mask))


def fill(mask: NDArray[np.bool_], rows: Sequence[Array], rest: int) -> Integers:
    """The rows' values where the mask is true, `rest` elsewhere."""
    values = np.full(mask.shape, rest, np.int64)
    if len(rows):
        values[mask] = np.concatenate(rows)
    return values


def _count_special(template: Template) -> int:
    return sum(len(frame.before) + len(frame.after) for frame in template.values())
