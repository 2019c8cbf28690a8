"""Workers: the same answers on any number of cores, in order; each computes on one."""

import threading
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from contracts.random_models import find_folder
from seqloom.predict import predictor
from seqloom.predict.invariance import TOLERANCE, compare
from seqloom.predict.predictor import batch_by_length
from seqloom.predict.workers import share

TEXTS = [f"w{n % 29} " * (1 + n % 7) for n in range(120)]


@pytest.fixture
def two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_results_come_in_order_from_threads_that_use_one_core_each() -> None:
    together = threading.Barrier(2, timeout=300)

    def look(part: int) -> tuple[int, int, bool, str]:
        if part < 2:
            together.wait()  # both workers are there
        return part, torch.get_num_threads(), torch.is_inference_mode_enabled(), threading.current_thread().name

    with torch.inference_mode():
        found = list(share(range(9), look, 2))
    assert [part for part, *_ in found] == list(range(9))
    assert {(threads, mode) for _, threads, mode, _ in found} == {(1, True)}
    assert len({name for *_, name in found}) == 2
    assert torch.get_num_threads() == 2
    assert list(share([3], look, 2)) == [(3, 2, False, threading.current_thread().name)]


@pytest.mark.usefixtures("two_threads")
def test_an_error_is_raised_where_its_part_was_wanted() -> None:
    found = share([1, 2, 0, 4], lambda part: 1 // part, 2)
    assert [next(found), next(found)] == [1, 0]
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert torch.get_num_threads() == 2


def test_there_are_batches_for_all_workers_unless_they_would_be_small() -> None:
    rows = [[0] * 25] * 64
    assert [len(batch) for batch in batch_by_length(rows)] == [64]
    assert [len(batch) for batch in batch_by_length(rows, 1, 2)] == [32, 32]
    assert [len(batch) for batch in batch_by_length(rows[:20], 1, 2)] == [20]
    assert [len(batch) for batch in batch_by_length(rows[:20], 4, 2)] == [10, 10]
    assert sorted(index for batch in batch_by_length([[0] * n for n in range(1, 99)], 1, 3) for index in batch) == [
        *range(98)
    ]


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", ["translation/transformer", "language-model/grouped", "tagging/transformer", "bert"])
def test_answers_are_the_same_on_any_number_of_cores(
    name: str, precision: Any, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictor, "_BATCH_TOKENS", 256)
    model = seqloom.load(find_folder(name), precision=precision)

    def answer() -> tuple[object, ...]:
        verbs = {"translation/transformer": "translate", "language-model/grouped": "generate"}
        if verb := verbs.get(name):
            ask = getattr(model, verb)
            return *ask(TEXTS, max_length=5), *ask(TEXTS, beam=3, nbest=2, max_length=5)
        return tuple(model.tag(TEXTS)) if name.startswith("tagging") else (model.embed(TEXTS, layer="all"),)

    shared = answer()
    torch.set_num_threads(1)
    assert compare(shared, answer()) <= (TOLERANCE if precision == "float32" else 0.0)


def test_a_network_with_hooks_is_called_by_nobody_else(two_threads: None) -> None:
    model, names = seqloom.load(find_folder("bert")), set[str]()
    before = model.embed(TEXTS)
    model.network.encoder.register_forward_hook(lambda *_: names.add(threading.current_thread().name))
    np.testing.assert_allclose(model.embed(TEXTS), before, atol=1e-5)
    assert names == {threading.current_thread().name}
