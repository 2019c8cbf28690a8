"""Names of files as a user writes them -> the files to read, in an order that is the same on every machine."""

import difflib
import glob
from collections.abc import Sequence
from pathlib import Path

from seqloom.data.fault import Fault

STDIN = "-"


def find_files(names: Sequence[str], base: Path) -> tuple[list[str], list[Fault]]:
    """Expand files, patterns and folders below `base`; what is not there comes back as faults."""
    found: list[str] = []
    faults: list[Fault] = []
    for name in names:
        files, problem = _expand(name, base)
        found += files
        if problem:
            faults.append(Fault("missing_file", str(base / name), 0, problem))
    return found, faults


def _expand(name: str, base: Path) -> tuple[list[str], str]:
    if name == STDIN:
        return [STDIN], ""
    path = base / name
    if path.is_dir():
        inside = sorted(str(p) for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
        return inside, "" if inside else "the folder holds no files"
    if path.exists():
        return [str(path)], ""
    if path.is_symlink():
        return [], f"a link to {path.readlink()}, which is not there"
    if not glob.has_magic(name):
        return [], f"no such file{_nearest(path)}"
    matches = sorted(p for p in glob.glob(str(path), recursive=True) if not Path(p).is_dir())
    return matches, "" if matches else "no file matches the pattern"


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _nearest(path: Path) -> str:
    """A file of nearly that name in the same folder, or the first folder of the path that does not exist."""
    if not path.parent.is_dir():
        missing = path.parent
        while not missing.parent.is_dir():
            missing = missing.parent
        return f" (there is no folder {missing})"
    close = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""
