"""Text -> shards, once.

Records are taken in chunks that never span two files. A shard's name is the hash of its chunk and of the columns that
encode it, so a chunk that was encoded before is recognised by its name: after an edit, only the shards that hold the
edit are written again. When no file, tokeniser or setting has changed, no text is read.

Two Python threads encode. They let go of Python while they look up parts of texts or wait for the tokeniser's own
threads, so reading and writing continue meanwhile. Memory is bounded by three chunks, whatever the size of the corpus.
Chunks may also be encoded elsewhere (a `Spread`): what a shard holds depends on its chunk alone.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from seqloom.data.columns import Column
from seqloom.data.examples import Chunk, raise_unreadable
from seqloom.data.shards import (
    FORMAT,
    MANIFEST,
    Manifest,
    Ragged,
    ShardEntry,
    check_shard,
    describe_shard,
    read_manifest,
    write_manifest,
    write_shard,
)
from seqloom.errors import DataError
from seqloom.files import hash_file

CHUNK_RECORDS = 1 << 16
CHUNK_CHARACTERS = 1 << 23
_THREADS = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


class Source(Protocol):
    """What encoding needs of a corpus; its `repr` says how the files are read."""

    def files(self) -> Sequence[str]:
        """The files that the records come from."""

    def chunks(self) -> Iterator[Chunk]:
        """The records and their faults."""


@dataclass(frozen=True)
class EncodedCorpus:
    """The manifest of an encoded corpus, and how many of its shards were written now or reused."""

    manifest: Manifest
    written: int
    reused: int


@dataclass(frozen=True)
class ChunkEncoder:
    """Writes the shard of a chunk, unless it is there; it may be sent to another process."""

    folder: Path
    columns: Mapping[str, Column]
    fingerprints: Mapping[str, str]

    def __call__(self, chunk: Chunk) -> tuple[ShardEntry, bool]:
        """The entry of the shard, and whether it was written now."""
        path = self.folder / _name_shard(chunk, self.fingerprints)
        new = not path.exists()
        if new:
            encoded: dict[str, Ragged] = {}
            for role, column in self.columns.items():
                encoded |= column.encode(role, chunk)
            write_shard(path, encoded, chunk.lines)
        return describe_shard(path, chunk.path), new


Spread = Callable[[ChunkEncoder, Iterable[Chunk]], Iterator[tuple[ShardEntry, bool]]]
"""Applies an encoder to chunks, somewhere; what it gives is in their order."""


def encode_corpus(
    source: Source, columns: Mapping[str, Column], folder: Path, spread: Spread | None = None
) -> EncodedCorpus:
    """Bring the shards in `folder` up to date with a corpus; `spread` says where, by default here, in threads.

    The folder belongs to this corpus and to one caller at a time: any other file in it is removed.
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
        return EncodedCorpus(previous, written=0, reused=len(previous.shards))

    encoder = ChunkEncoder(folder.resolve(), columns, fingerprints)
    done = list((spread or _map_in_threads)(encoder, _cut_chunks(source.chunks())))
    manifest = replace(wanted, shards=tuple(entry for entry, _ in done))
    write_manifest(folder, manifest)
    for path in set(folder.iterdir()) - {folder / MANIFEST, *(folder / entry.file for entry, _ in done)}:
        path.unlink()
    written = sum(new for _, new in done)
    return EncodedCorpus(manifest, written, len(done) - written)


def _hash_sources(files: Sequence[str]) -> dict[str, str]:
    """The hash of each file; none at all if a file, such as standard input, cannot be read twice."""
    return {file: hash_file(Path(file)) for file in files} if all(Path(file).is_file() for file in files) else {}


def _is_intact(folder: Path, entry: ShardEntry) -> bool:
    try:
        check_shard(folder / entry.file, entry.sha256)
    except DataError:
        return False
    return True


def _name_shard(chunk: Chunk, fingerprints: Mapping[str, str]) -> str:
    """Name a shard after its text and the fingerprints of its columns."""
    content = repr((FORMAT, fingerprints, chunk.lines, chunk.columns))
    return f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.safetensors"


def _cut_chunks(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Cut the records into chunks of one file, with limits on the number of records and characters.

    A reader's own chunks depend on bytes, so they would change with every edit.
    """
    held, characters = Chunk("", [], {}), 0
    for chunk in chunks:
        raise_unreadable(chunk.faults)
        if not chunk.lines:
            continue
        if held.lines and held.path != chunk.path:
            yield held
            held, characters = Chunk("", [], {}), 0
        start, room = 0, CHUNK_RECORDS - len(held)
        for index, sizes in enumerate(zip(*(map(len, column) for column in chunk.columns.values()), strict=True)):
            if index - start >= room or characters >= CHUNK_CHARACTERS:
                yield _extend(held, chunk, start, index)
                held, characters = Chunk("", [], {}), 0
                start, room = index, CHUNK_RECORDS
            characters += sum(sizes)  # for words, their number: sentences are short
        held = _extend(held, chunk, start, len(chunk))
    if held.lines:
        yield held


def _extend(held: Chunk, chunk: Chunk, start: int, stop: int) -> Chunk:
    columns: dict[str, Any] = {
        role: [*held.columns.get(role, ()), *column[start:stop]] for role, column in chunk.columns.items()
    }
    return Chunk(chunk.path, [*held.lines, *chunk.lines[start:stop]], columns)


def _map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield results in the order of the items; only a few of them exist at any time."""
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            if len(waiting) == _THREADS:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, item))
        while waiting:
            yield waiting.popleft().result()
