"""What the contracts share."""

import pytest


@pytest.fixture
def many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches are one group of sequences, unless one more group costs nothing."""
    monkeypatch.setattr("seqloom.nn.packing._GROUP_COST", 0)
