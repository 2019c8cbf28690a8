"""Real corpora beside the repository: tests that need one skip, with the reason, where it is absent."""

import os
from pathlib import Path

import pytest

_ROOT = Path(os.environ.get("SEQLOOM_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


def corpus(name: str) -> Path:
    """The path of one file of the shared corpora, such as `multi30k/train.de.gz`."""
    path = _ROOT / name
    if not path.exists():
        pytest.skip(f"needs the corpus {name}; set SEQLOOM_SHARED_DATA to the folder that holds it")
    return path
