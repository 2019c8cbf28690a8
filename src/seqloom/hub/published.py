"""Folders of published weights, of whatever kind."""

from pathlib import Path

from seqloom.errors import DataError
from seqloom.hub import elmo
from seqloom.hub.huggingface import load
from seqloom.hub.imported import Imported


def is_published(path: Path) -> bool:
    """Whether this is somebody else's folder, not a run of ours."""
    return not (path / "manifest.json").exists() and (load.is_folder(path) or elmo.is_folder(path))


def load_published(path: str | Path) -> Imported:
    """The model of a folder, mapped onto our blocks; what cannot be is refused before anything is allocated."""
    folder = Path(path)
    if not is_published(folder):
        raise DataError(
            f"{folder / 'config.json'}: cannot be read: there is none, so {folder} is no Hugging Face folder; "
            "ELMo's files are not there either"
        )
    return elmo.load_folder(folder) if elmo.is_folder(folder) else load.load_folder(folder)
