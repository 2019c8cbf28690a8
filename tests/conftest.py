"""Every test runs on one thread, against no clock; those of a model's parts with shapes checked at each call."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, groupby, islice
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from shapecheck import unchecked

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported; parallel workers share the cores
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # where more threads are asked for, they do not wait at others' cost
os.environ.setdefault("RAY_worker_niceness", "0")  # or the workers would starve beside the other tests
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
install_import_hook(["seqloom.types", "seqloom.nn", "seqloom.encoders", "seqloom.decoders"], "shapecheck.check")
settings.register_profile("seqloom", deadline=None, max_examples=50)
settings.load_profile("seqloom")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole trainings come first, file by file dealt out to the workers; what is stolen towards the end is short."""
    for item in items:
        if item.path.parent.name == "long":
            item.add_marker("long")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.path.parent.name == "e2e"]
    short = iter([item for item in items if item.path.parent.name != "e2e"])
    hands: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for number, (_, file) in enumerate(groupby(long, key=lambda item: item.path)):
        hands[number % workers] += file
    left = len(items)
    for number, hand in enumerate(hands):
        share = left // (workers - number)  # as xdist cuts the list
        hand += islice(short, max(0, share - len(hand)))
        left -= share
    items[:] = [*chain.from_iterable(hands), *short]


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    """Random tensors do not depend on which tests ran before."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def _shapes_are_checked_where_parts_are_tested(request: pytest.FixtureRequest) -> Iterator[None]:
    """Not where whole models are: a fifth of the time would go into it."""
    folder = request.path.relative_to(Path(__file__).parent)
    whole = folder.parts[0] in ("e2e", "parity") or folder.parts[:2] == ("unit", "predict")
    with unchecked() if whole else nullcontext():
        yield


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """Shapes are not checked, so the code itself must refuse what does not fit."""
    with unchecked():
        yield
