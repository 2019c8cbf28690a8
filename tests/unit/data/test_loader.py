import threading
import time
from itertools import islice

import pytest

from seqloom.data.batching import Loader
from seqloom.errors import DataError


def loader_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("seqloom-loader")]


def test_batches_come_in_the_order_of_their_steps():
    with Loader(lambda step: step * step, 3, 10) as loader:
        assert list(loader) == [9, 16, 25, 36, 49, 64, 81]


def test_it_starts_at_any_step_without_making_the_others():
    made = []
    with Loader(made.append, 1_000_000, ahead=2) as loader:
        list(islice(loader, 3))
    assert made[0] == 1_000_000
    assert len(made) <= 5


def test_batches_are_made_ahead_in_another_thread():
    made = threading.Event()

    def make(step):
        if step == 2:
            made.set()
        return threading.current_thread().name

    with Loader(make, 0, ahead=3) as loader:
        assert made.wait(timeout=300), "nobody asked for step 2 yet"
        assert next(loader).startswith("seqloom-loader")


def test_an_error_is_raised_where_the_batch_is_asked_for():
    def make(step):
        if step == 2:
            raise DataError("train.de:7: cannot be read")
        return step

    loader = Loader(make, 0)
    assert [next(loader), next(loader)] == [0, 1]
    with pytest.raises(DataError, match=r"train\.de:7"):
        next(loader)
    assert not loader_threads()


@pytest.mark.parametrize("end", [None, 5])
def test_leaving_ends_the_thread(end):
    with Loader(lambda step: step, 0, end) as loader:
        assert next(loader) == 0
        assert loader_threads()
    assert not loader_threads()
    assert list(loader) == []


def test_reaching_the_end_ends_the_thread():
    assert list(Loader(lambda step: step, 0, 3)) == [0, 1, 2]
    assert not loader_threads()


def test_waiting_is_measured():
    """The first batch comes half a second after it was asked for, give or take what else the machine does."""
    there = threading.Event()
    with Loader(lambda step: there.wait(300), 0, 5) as loader:
        threading.Timer(0.5, there.set).start()
        began = time.perf_counter()
        assert list(loader) == [True] * 5
        assert 0.1 <= loader.waited <= time.perf_counter() - began
