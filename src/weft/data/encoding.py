"""Text -> shards, once.

Records are taken in chunks that never span two files. A shard's name is the hash of its chunk and of what encodes it,
so a chunk that was encoded before is recognised by its name: after an edit, only the shards that hold the edit are
written again. When no file, tokeniser or setting has changed, nothing is even read.

The tokeniser's own threads use every core and release Python while they work; two Python threads keep them fed, so
that reading and writing go on meanwhile. Memory is bounded by three chunks, whatever the size of the corpus.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from weft.data.columns import Column
from weft.data.example import Example
from weft.data.shards import (
    FORMAT,
    MANIFEST,
    Manifest,
    Ragged,
    ShardEntry,
    check_shard,
    describe_shard,
    hash_file,
    read_manifest,
    write_manifest,
    write_shard,
)
from weft.errors import DataError

CHUNK_RECORDS = 1 << 16
CHUNK_CHARACTERS = 1 << 23
_THREADS = 2


Item = TypeVar("Item")
Result = TypeVar("Result")


class Source(Protocol):
    """What encoding asks of a corpus; its `repr` says how the files are read."""

    def files(self) -> Sequence[str]:
        """The files whose content decides the records."""

    def __iter__(self) -> Iterator[Example]: ...


@dataclass(frozen=True)
class Encoding:
    """What encoding a corpus did."""

    manifest: Manifest
    written: int
    reused: int


def encode_corpus(
    source: Source, columns: Mapping[str, Column], folder: Path, advance: Callable[[int], None] = lambda records: None
) -> Encoding:
    """Bring the shards in `folder` up to date with a corpus; `advance` is told of records as they are done.

    The folder belongs to this corpus, and one process at a time: what no longer belongs there is removed.
    """
    fingerprints = {role: column.fingerprint for role, column in columns.items()}
    wanted = Manifest(fingerprints, repr(source), _hash_sources(source.files()), shards=())
    try:
        previous = read_manifest(folder)
    except DataError:  # none yet, or of another version
        previous = wanted
    damaged = [entry for entry in previous.shards if not _is_intact(folder, entry)]
    for entry in damaged:
        (folder / entry.file).unlink(missing_ok=True)
    if previous.shards and wanted.sources and not damaged and previous == replace(wanted, shards=previous.shards):
        return Encoding(previous, written=0, reused=len(previous.shards))

    def encode_chunk(examples: Sequence[Example]) -> tuple[ShardEntry, bool]:
        path = folder / _name_shard(examples, fingerprints)
        new = not path.exists()
        if new:
            encoded: dict[str, Ragged] = {}
            for role, column in columns.items():
                encoded |= column.encode(role, examples)
            write_shard(path, encoded, [example.line for example in examples])
        return describe_shard(path, examples[0].path), new

    entries, written = [], 0
    for entry, new in _map_in_threads(encode_chunk, _cut_chunks(source)):
        entries.append(entry)
        written += new
        advance(entry.records)
    manifest = replace(wanted, shards=tuple(entries))
    write_manifest(folder, manifest)
    for path in set(folder.iterdir()) - {folder / MANIFEST, *(folder / entry.file for entry in entries)}:
        path.unlink()
    return Encoding(manifest, written, len(entries) - written)


def _hash_sources(files: Sequence[str]) -> dict[str, str]:
    """The hash of each file; nothing when one cannot be read twice, as standard input."""
    return {file: hash_file(Path(file)) for file in files} if all(Path(file).is_file() for file in files) else {}


def _is_intact(folder: Path, entry: ShardEntry) -> bool:
    try:
        check_shard(folder / entry.file, entry.sha256)
    except DataError:
        return False
    return True


def _name_shard(examples: Sequence[Example], fingerprints: Mapping[str, str]) -> str:
    """A name for exactly this text, encoded exactly so."""
    digest = hashlib.sha256(repr((FORMAT, fingerprints)).encode())
    for example in examples:
        digest.update(repr((example.line, *example.values.items())).encode())
    return f"{digest.hexdigest()[:32]}.safetensors"


def _cut_chunks(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Consecutive records of one file, up to a number of records and characters."""
    chunk: list[Example] = []
    characters = 0
    for example in examples:
        full = len(chunk) >= CHUNK_RECORDS or characters >= CHUNK_CHARACTERS
        if chunk and (full or chunk[0].path != example.path):
            yield chunk
            chunk, characters = [], 0
        chunk.append(example)
        characters += sum(len(part) for value in example.values.values() for part in _texts(value))
    if chunk:
        yield chunk


def _texts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in the order of the items, no more than a few of which exist at any time."""
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            if len(waiting) == _THREADS:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, item))
        while waiting:
            yield waiting.popleft().result()
