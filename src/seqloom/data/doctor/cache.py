"""Reports kept by what they are about: the settings and the content of every file.

The digest of a file is remembered with its size and time of change, so a file that was not touched is not read again.
"""

import hashlib
import json
import time
from pathlib import Path

from pydantic import ValidationError

from seqloom import __version__
from seqloom.config.data import Data
from seqloom.data.corpus import SPLITS, open_split
from seqloom.data.doctor.report import Report

_SETTLED = 2.0
"""Seconds after which a further change of a file is sure to change its time of change."""


class Cache:
    """A folder of reports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index = folder / "files.json"
        self._files: dict[str, list[int | str]] = _read_json(self._index)

    def key(self, data: Data, base: Path) -> str:
        """What a report about this data is called."""
        digest = hashlib.blake2b(f"{__version__}\0{data.model_dump_json()}\0{base}".encode(), digest_size=16)
        for split in SPLITS:
            for corpus in open_split(data, split, base):
                for file in corpus.files():
                    digest.update(f"\0{split}\0{file}\0{self._digest(file)}".encode())
        self.folder.mkdir(parents=True, exist_ok=True)
        self._index.write_text(json.dumps(self._files))
        return digest.hexdigest()

    def load(self, key: str) -> Report | None:
        """The report of that name, if there is one."""
        try:
            return Report.model_validate_json((self.folder / f"{key}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def save(self, key: str, report: Report) -> None:
        """Keep a report."""
        (self.folder / f"{key}.json").write_text(report.model_dump_json())

    def _digest(self, file: str) -> str:
        path = Path(file)
        if not path.is_file():  # a pipe or standard input is never the same twice
            return str(time.time_ns())
        try:
            state = path.stat()
            known = self._files.get(str(path.resolve()), [])
            if known[:2] == [state.st_size, state.st_mtime_ns]:
                return str(known[2])
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "blake2b").hexdigest()[:32]
        except OSError as error:
            return f"unreadable: {error}"
        if time.time() - state.st_mtime > _SETTLED:
            self._files[str(path.resolve())] = [state.st_size, state.st_mtime_ns, digest]
        return digest


def _read_json(path: Path) -> dict[str, list[int | str]]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
