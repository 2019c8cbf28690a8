"""Kernels are tested where there are some, each at every level that the processor has."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from seqloom.native import library, words
from seqloom.native.library import describe

if folder := os.environ.get("SEQLOOM_TESTED_KERNELS"):  # where `make sanitize` has built them
    library._FOLDER = Path(folder)
    words._FILE = Path(folder) / words._FILE.name
    assert library.choose(None).info.level is not None, library.choose(None).info.reason


@pytest.fixture
def two_threads() -> Iterator[None]:
    """As many as a kernel needs to share its work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def kernels() -> None:
    """Skips, with the reason, where there are none."""
    if describe().level is None:
        pytest.skip(describe().reason)


X86 = platform.machine() in ("x86_64", "AMD64")


@pytest.fixture(params=["x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "x86-64-v4-bf16"] if X86 else ["aarch64"])
def level(request: pytest.FixtureRequest, kernels: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernels of one level are used."""
    try:
        found = library.choose(request.param)
    except ValueError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(library._State, "found", found)
    return str(request.param)
