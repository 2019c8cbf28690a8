"""Encoded records from plain lists of numbers, for tests that start where encoding ends."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seqloom.data.shards import Manifest, Ragged, Records, describe_shard, write_manifest, write_shard

Columns = Mapping[str, Sequence[Sequence[float]]]


def write_folder(folder: Path, *shards: Columns) -> Path:
    """A folder with one shard for each set of columns; record i of a shard stands in line i + 1 of `corpus.txt`."""
    entries = []
    for number, columns in enumerate(shards):
        path = folder / f"{number}.safetensors"
        ragged = {name: Ragged.join(rows, _dtype(rows)) for name, rows in columns.items()}
        write_shard(path, ragged, range(1, len(next(iter(columns.values()))) + 1))
        entries.append(describe_shard(path, "corpus.txt"))
    write_manifest(folder, Manifest({}, "lists", {}, tuple(entries)))
    return folder


def _dtype(rows: Sequence[Sequence[float]]) -> np.dtype:
    return np.dtype(np.float32 if any(isinstance(value, float) for row in rows for value in row) else np.uint16)


def make_records(folder: Path, *shards: Columns) -> Records:
    """The records of one folder."""
    return Records([write_folder(folder, *shards)])
