"""Encoded text on disk: ragged columns of numbers in memory-mapped files.

A folder holds shards and one `manifest.json`. A shard is a safetensors file. For each column, `NAME` has the values of
all records end to end and `NAME.offsets` says where each record starts; `lines` has the line of each record in its
source file. A shard is named after its content, so a shard that exists never needs to be made again, and it is always
complete: see `seqloom.files`.
"""

import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from seqloom.errors import DataError
from seqloom.files import hash_file, write_whole
from seqloom.types import TokenBatch

FORMAT = 1
MANIFEST = "manifest.json"
_DTYPES = {"U16": "<u2", "U32": "<u4", "F32": "<f4"}
_OPEN_SHARDS = 256
_DAMAGED = "{path}: this shard is damaged ({reason}); delete it and encode the text again"

Array = NDArray[Any]
Integers = NDArray[np.int64]


class Ragged(NamedTuple):
    """Rows of different lengths: row i is values[offsets[i] : offsets[i + 1]]."""

    values: Array
    offsets: NDArray[np.integer[Any]]

    @staticmethod
    def join(rows: Sequence[Sequence[float]], dtype: np.dtype[Any]) -> "Ragged":
        """Put rows end to end."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
        values = np.fromiter(chain.from_iterable(rows), dtype, int(offsets[-1]))
        return Ragged(values, offsets)

    @staticmethod
    def chain(parts: Sequence[tuple[Array, Integers]], dtype: np.dtype[Any]) -> "Ragged":
        """Put the rows of several end to end; each is its values and where its rows start."""
        starts = np.cumsum([0, *(len(values) for values, _ in parts)])
        offsets = [offsets[1:] + start for (_, offsets), start in zip(parts, starts, strict=False)]
        values = [values.astype(dtype, copy=False) for values, _ in parts]
        return Ragged(np.concatenate([np.empty(0, dtype), *values]), np.concatenate([np.zeros(1, np.int64), *offsets]))

    def pad(self, pad_id: int) -> TokenBatch:
        """Make a batch of rows of ids."""
        return TokenBatch.unflatten(self.values, np.diff(self.offsets), pad_id)


@dataclass(frozen=True)
class ShardEntry:
    """A shard in the manifest."""

    file: str
    sha256: str
    source: str
    records: int
    values: Mapping[str, int]
    """How many numbers each column holds: for a column of text, its tokens."""


@dataclass(frozen=True)
class Manifest:
    """The content of a corpus folder and where it came from."""

    columns: Mapping[str, str]
    """The fingerprint of each column: of its tokeniser or its labels."""
    reader: str
    """How the files are read."""
    sources: Mapping[str, str]
    """The SHA-256 of each file that was read."""
    shards: Sequence[ShardEntry]
    format: int = FORMAT


def write_shard(path: Path, columns: Mapping[str, Ragged], lines: Sequence[int]) -> None:
    """Write the columns of some records and their line numbers."""
    arrays: dict[str, Array] = {"lines": np.array(lines, np.uint32)}
    for name, column in columns.items():
        arrays |= {name: column.values, f"{name}.offsets": column.offsets.astype(np.uint32)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, save(arrays))


def describe_shard(path: Path, source: str) -> ShardEntry:
    """The manifest entry of a shard made from the file `source`."""
    shard = Shard(path)
    values = {name: len(column.values) for name, column in shard.columns.items()}
    return ShardEntry(path.name, hash_file(path), source, len(shard.lines), values)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest; the folder is then complete."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / MANIFEST, json.dumps(asdict(manifest), indent=1, ensure_ascii=False).encode())


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a corpus folder."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
        shards = tuple(ShardEntry(**entry) for entry in content.pop("shards"))
        manifest = Manifest(**content, shards=shards)
    except FileNotFoundError:
        raise DataError(
            f"{folder}: there is no encoded corpus here ({MANIFEST} is missing); encode the text first"
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path}: the file is damaged ({error}); delete it and encode the text again") from None
    if manifest.format != FORMAT:
        raise DataError(
            f"{path}: the format is {manifest.format}, but this version reads {FORMAT}; encode the text again"
        )
    return manifest


class Shard:
    """One memory-mapped file. Its arrays are views: the system reads the pages in use and can drop the others."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            start = 8 + int.from_bytes(memory[:8], "little")
            header = json.loads(memory[8:start])
            arrays = {name: _view(memory, start, **entry) for name, entry in header.items()}
            self.lines = arrays.pop("lines")
            names = [name for name in arrays if not name.endswith(".offsets")]
            self.columns = {name: Ragged(arrays[name], arrays[f"{name}.offsets"]) for name in names}
        except FileNotFoundError:
            raise DataError(f"{path}: the file is missing; encode the text again") from None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise DataError(_DAMAGED.format(path=path, reason=error)) from None


def _view(memory: mmap.mmap, start: int, dtype: str, shape: Sequence[int], data_offsets: Sequence[int]) -> Array:
    return np.frombuffer(memory, _DTYPES[dtype], shape[0], start + data_offsets[0])


class Records:
    """The encoded records of one or several folders, numbered in order; opening checks the SHA-256 of every file."""

    def __init__(self, folders: Sequence[Path]) -> None:
        manifests = [read_manifest(folder) for folder in folders]
        self._entries = [entry for manifest in manifests for entry in manifest.shards]
        self._paths = [folder / e.file for folder, m in zip(folders, manifests, strict=True) for e in m.shards]
        for path, entry in zip(self._paths, self._entries, strict=True):
            check_shard(path, entry.sha256)
        self.sizes = [sum(entry.records for entry in manifest.shards) for manifest in manifests]
        counts = np.array([entry.records for entry in self._entries], np.int64)
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        self._open = lru_cache(maxsize=_OPEN_SHARDS)(Shard)

    def __len__(self) -> int:
        return sum(self.sizes)

    def measure(self, column: str) -> NDArray[np.int32]:
        """The length of every record in a column."""
        lengths = np.empty(len(self), np.int32)
        for path, start, end in zip(self._paths, self._starts, self._ends, strict=True):
            offsets = self._open(path).columns[column].offsets
            np.subtract(offsets[1:], offsets[:-1], out=lengths[start:end], casting="unsafe")  # no row has 2³¹ tokens
        return lengths

    def scan(self, column: str) -> Iterator[Array]:
        """All numbers of a column, shard by shard."""
        return (self._open(path).columns[column].values for path in self._paths)

    def read(self, column: str, record: int) -> Array:
        """Read one row as a view of the file."""
        owner, index = self._find(record)
        values, offsets = self._open(self._paths[owner]).columns[column]
        return values[offsets[index] : offsets[index + 1]]

    def gather(self, column: str, records: Integers, starts: Integers, lengths: Integers) -> Array:
        """Read parts of many rows, end to end: of each record, `length` values from `start` on."""
        kind = self._open(self._paths[0]).columns[column].values.dtype.kind
        gathered = np.empty(lengths.sum(), np.float32 if kind == "f" else np.int64)
        targets = np.cumsum(lengths) - lengths
        owners, indices = self._find(records)
        for owner in np.unique(owners):
            mine = owners == owner
            values, offsets = self._open(self._paths[owner]).columns[column]
            sources = offsets[indices[mine]] + starts[mine]
            gathered[expand(targets[mine], lengths[mine])] = values[expand(sources, lengths[mine])]
        return gathered

    def locate(self, record: int) -> str:
        """The place a record came from, as `file:line`."""
        return next(self.locate_all(np.array([record])))

    def locate_all(self, records: Integers) -> Iterator[str]:
        """The places of many records, in their order."""
        for owner, index in zip(*self._find(records), strict=True):
            yield f"{self._entries[owner].source}:{self._open(self._paths[owner]).lines[index]}"

    def _find(self, records: Any) -> tuple[Any, Any]:
        """The shard that holds a record and the index in it, for one record or an array of them."""
        owners = np.searchsorted(self._ends, records, side="right")
        return owners, records - self._starts[owners]


def expand(starts: Integers, lengths: Integers) -> Integers:
    """Ranges of consecutive numbers, end to end: (5, 20), (2, 3) → 5, 6, 20, 21, 22."""
    before = np.cumsum(lengths) - lengths
    numbers: Integers = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    return numbers


def check_shard(path: Path, sha256: str) -> None:
    """Refuse a shard that is missing or whose bytes changed since it was written."""
    if not path.exists():
        raise DataError(f"{path}: the file is missing; encode the text again")
    if hash_file(path) != sha256:
        raise DataError(_DAMAGED.format(path=path, reason="its SHA-256 is not the one in the manifest"))
