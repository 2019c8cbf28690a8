"""Writes files that are complete or absent, even after a power failure; and hashes files."""

import hashlib
import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write under another name, flush to the disk, then rename: a file with the final name is complete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write_flushed(partial, content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        if error.errno is not None:
            error.filename = str(path)  # which a full disk does not say, and a user knows under this name only
        raise
    flush_folder(path.parent)


def write_flushed(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder. Windows cannot open a folder and needs no such flush."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
