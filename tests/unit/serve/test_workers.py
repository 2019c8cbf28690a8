"""Workers: answers are those of the command line, and a worker that ends takes no request with it."""

import asyncio
import os
import signal
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom
from seqloom.decode.greedy import Token
from seqloom.errors import RunError
from seqloom.predict.generate import plan_generation
from seqloom.predict.results import Result
from seqloom.predict.search import read_search
from seqloom.serve.batcher import Batcher
from seqloom.serve.faults import LostError
from seqloom.serve.metrics import Metrics
from seqloom.serve.pace import measure_pace, set_pace
from seqloom.serve.verbs import prepare
from seqloom.serve.work import SearchWork, VerbWork
from seqloom.serve.workers import Worker, WorkerFaultError
from unit.serve.conftest import make_run
from unit.serve.poison import end_at_once, measure
from unit.serve.served import Served

pytestmark = pytest.mark.usefixtures("as_users_run")  # whole models: shapes are checked elsewhere

TEXTS = ["the cat sees the dog", "a fish", "the bird likes a cat and a dog", "every horse"]


class Workers:
    """A batcher with two of them, which live as long as the tests."""

    def __init__(self) -> None:
        self.heard: list[BaseException] = []
        self.workers = [Worker(), Worker()]
        self.metrics = Metrics()
        self.batcher = Batcher(self.metrics, report=self.heard.append, computers=self.workers)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers()
    made.batcher.start()
    yield made
    made.batcher.stop()
    assert made.batcher.backlog == 0
    assert not made.batcher.piles


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, seqloom.Model]:
    folder = tmp_path_factory.mktemp("runs")
    tasks = ("translation", "language-model", "classification")
    return {task: seqloom.load(make_run(folder / task, task)) for task in tasks}


def search(model: seqloom.Model, texts: list[str], **options: Any) -> SearchWork:
    return SearchWork(model._predictor, plan_generation(model._predictor, texts, read_search(options)))


def test_answers_are_those_of_the_model(workers: Workers, models: dict[str, seqloom.Model]) -> None:
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("translation", "translate", {"align": True}),
        ("translation", "translate", {"beam": 3, "nbest": 2}),
        ("translation", "translate", {"beam": 2, "coverage_penalty": 0.5}),
        ("language-model", "generate", {"max_length": 20}),
        ("language-model", "generate", {"max_length": 20, "sample": True, "nbest": 2}),
        ("language-model", "score", {}),
        ("classification", "classify", {}),
        ("classification", "embed", {"layer": "all"}),
    ]

    async def run() -> list[Any]:
        works = [prepare(verb, models[task]._predictor, TEXTS, options) for task, verb, options in asked]
        return await asyncio.gather(*(workers.batcher.run(work, f"{n % 3}") for n, work in enumerate(works)))

    for (task, verb, options), found in zip(asked, asyncio.run(run()), strict=True):
        alone = getattr(models[task], verb)(TEXTS, **options)
        if verb == "embed":
            assert [one.vector for one in found] == [pytest.approx(one, abs=1e-5) for one in alone]
            continue
        for one, other in zip(found, alone, strict=True):
            for name in ("text", "tokens", "label", "alignment"):
                assert getattr(one, name, None) == getattr(other, name, None)
            for name in ("score", "probability", "token_scores", "log_probability"):
                assert getattr(one, name, 0) == pytest.approx(getattr(other, name, 0), abs=1e-5)


@pytest.mark.long
def test_a_worker_that_ends_takes_no_request_with_it(workers: Workers, models: dict[str, seqloom.Model]) -> None:
    """One is killed while it computes; what is streamed is told once."""
    model = models["language-model"]

    async def listen() -> tuple[list[Token], list[Result]]:
        tokens: list[Token] = []
        async for part in workers.batcher.stream(search(model, ["the cat"], max_length=200, min_length=200), "s"):
            if not isinstance(part, Token):
                return tokens, part
            tokens.append(part)
            if len(tokens) == 60:
                for pid in [worker.pid for worker in workers.workers]:
                    os.kill(pid or 0, signal.SIGKILL)
        raise AssertionError

    async def run() -> tuple[Any, list[Any]]:
        texts = [f"the cat {word}" for word in ("sees", "likes", "and", "dog")]
        others = [
            asyncio.create_task(workers.batcher.run(search(model, [text], max_length=200, min_length=200), text))
            for text in texts
        ]
        heard = await listen()
        return heard, await asyncio.gather(*others)

    (tokens, [result]), others = asyncio.run(run())
    alone = model.generate("the cat", max_length=200, min_length=200)
    assert result.text == alone.text  # type: ignore[attr-defined]
    assert [token.score for token in tokens] == pytest.approx(alone.token_scores, abs=1e-5)
    texts = [f"the cat {word}" for word in ("sees", "likes", "and", "dog")]
    assert [one.text for [one] in others] == [one.text for one in model.generate(texts, max_length=200, min_length=200)]
    assert workers.metrics.total("seqloom_worker_losses_total") == 2


@pytest.mark.long
def test_a_text_that_ends_workers_fails_alone(workers: Workers, models: dict[str, seqloom.Model]) -> None:
    items = ["a", "bb", "leave", "dddd", "refuse", "break", "ggggggg"]
    model = models["language-model"]._predictor

    async def run() -> list[Any]:
        asked = (workers.batcher.run(VerbWork(model, "a verb", [item], measure), "c") for item in items)
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(run())
    for item, one in zip(items, found, strict=True):
        if item not in ("leave", "refuse", "break"):
            assert one[0].value == len(item)
    assert isinstance(found[2], LostError)
    assert str(found[2]) == "two workers ended while they computed this text; leave it out"
    assert str(found[4]) == "this one cannot be read"
    assert isinstance(found[5], WorkerFaultError)
    assert found[5].kind == "KeyError"
    assert not any("no log may hold" in str(error) for error in workers.heard)


def test_who_leaves_is_not_computed_for(workers: Workers, models: dict[str, seqloom.Model]) -> None:
    model = models["language-model"]

    async def run() -> None:
        asked = [
            asyncio.create_task(
                workers.batcher.run(search(model, ["the cat"], max_length=100, seed=n, sample=True), f"{n}")
            )
            for n in range(1000)
        ]
        await asyncio.sleep(0.2)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert workers.batcher.backlog == 0
        [last] = await workers.batcher.run(search(model, ["the dog"], max_length=3), "next")
        assert last.text == model.generate("the dog", max_length=3).text  # type: ignore[attr-defined]

    asyncio.run(run())


def test_no_worker_is_left_where_one_cannot_begin() -> None:
    workers = [Worker(), Worker(end_at_once)]
    with pytest.raises(RunError, match="a worker ended as soon as it had begun: if memory was short"):
        Batcher(Metrics(), computers=workers).start()
    assert [worker._process.is_alive() for worker in workers] == [False, False]


def test_a_worker_begins_anew_once_there_is_room_for_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where memory is short for a moment: the first process cannot be started, the second one can."""
    monkeypatch.setattr("seqloom.serve.workers._PAUSE", 0.0)
    refused: list[Any] = []
    process: Any = get_context("spawn").Process
    start = process.start

    def start_later(own: Any) -> None:
        if not refused:
            refused.append(own)
            raise OSError("cannot allocate memory")
        start(own)

    monkeypatch.setattr(process, "start", start_later)
    worker = Worker()
    worker.restart()
    assert len(refused) == 1
    assert worker.pid is not None
    worker.stop()


def test_the_pace_is_measured_and_said(tmp_path: Path) -> None:
    served = Served({"lm": make_run(tmp_path / "lm", "language-model")})
    found = measure_pace(served.service.models)
    assert found.workers == 1 or found.threads == 1
    assert max(found.workers, found.threads) == torch.get_num_threads()
    assert str(set_pace(4)) == "4 processes computing with 1 thread each"
    assert "computing with" in str(found)
