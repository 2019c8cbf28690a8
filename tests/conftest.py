"""Every test runs with shapes checked at each call, on one thread, against no clock."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from shapecheck import unchecked

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported; parallel workers share the cores
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # where more threads are asked for, they do not wait at others' cost
os.environ.setdefault("RAY_worker_niceness", "0")  # or the workers would starve beside the other tests
install_import_hook(["weft.types", "weft.nn", "weft.encoders", "weft.decoders"], "shapecheck.check")
settings.register_profile("weft", deadline=None, max_examples=50)
settings.load_profile("weft")


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    """Random tensors do not depend on which tests ran before."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """Shapes are not checked, so the code itself must refuse what does not fit."""
    with unchecked():
        yield
