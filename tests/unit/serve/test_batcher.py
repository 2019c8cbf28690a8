"""The batcher: clients take turns, the queue has an end, who leaves is not computed for, and a fault stays alone."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom
from seqloom.decode.greedy import Token
from seqloom.errors import RunError
from seqloom.predict.generate import plan_generation
from seqloom.predict.results import Quantity, Result
from seqloom.predict.search import read_search
from seqloom.predict.translate import plan_translation
from seqloom.serve.batcher import Batcher
from seqloom.serve.computer import Computer, LocalComputer
from seqloom.serve.fairness import FairQueue
from seqloom.serve.faults import QueueFullError
from seqloom.serve.metrics import Metrics
from seqloom.serve.work import SearchWork, Verb, VerbWork, Work
from unit.serve.conftest import make_run

pytestmark = pytest.mark.usefixtures("as_users_run")  # whole models: shapes are checked elsewhere


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> seqloom.Model:
    return seqloom.load(make_run(tmp_path_factory.mktemp("run") / "lm", "language-model"))


@contextmanager
def batching(*computers: Computer) -> Iterator[Batcher]:
    batcher = Batcher(Metrics(), computers=computers)
    batcher.start()
    try:
        yield batcher
    finally:
        batcher.stop()
        assert batcher.backlog == 0


class Held(LocalComputer):
    """Waits in its first step until it is let go, so that what comes in meanwhile is there at the second."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Event(), threading.Event()

    def step(self, group: int, *given: Any) -> Any:
        self.begun.set()
        assert self.let_go.wait(600)
        return super().step(group, *given)


async def ask_at_once(batcher: Batcher, held: Held, model: seqloom.Model, asked: Sequence[Work]) -> list[Any]:
    """What some work gives that comes in while the batcher is held up by a search; errors, too."""
    first = asyncio.create_task(batcher.run(search(model, ["a fish"], max_length=1), "first"))
    await asyncio.to_thread(held.begun.wait)
    tasks = [asyncio.create_task(batcher.run(one, "c")) for one in asked]
    await asyncio.sleep(0)  # each is begun, and comes in
    held.let_go.set()
    await first
    return await asyncio.gather(*tasks, return_exceptions=True)


def work(model: seqloom.Model, items: Sequence[Any], verb: Verb) -> VerbWork:
    return VerbWork(model._predictor, "a verb", items, verb)


def search(model: seqloom.Model, texts: list[str], **options: Any) -> SearchWork:
    return SearchWork(model._predictor, plan_generation(model._predictor, texts, read_search(options)))


def test_clients_and_requests_take_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for client, request, line in [("a", 1, "a1"), ("a", 1, "a2"), ("a", 1, "a3"), ("a", 2, "A1"), ("b", 3, "b1")]:
        queue.put(client, request, line)
    queue.put("b", 3, "b0", first=True)
    assert [*queue] == ["a1", "a2", "a3", "A1", "b0", "b1"]
    taken = []
    while queue:
        assert queue.peek() in ("a1", "a2", "a3", "A1", "b0", "b1")
        taken.append(queue.take())
    assert taken == ["a1", "b0", "A1", "b1", "a2", "a3"]


def test_a_small_request_does_not_wait_for_a_large_one(model: seqloom.Model) -> None:
    order: list[str] = []

    async def ask(batcher: Batcher, name: str, count: int) -> None:
        await batcher.run(search(model, ["the cat sees the dog"] * count, max_length=30), name)
        order.append(name)

    async def run() -> None:
        with batching(held := Held()) as batcher:
            large = asyncio.create_task(ask(batcher, "large", 600))
            await asyncio.to_thread(held.begun.wait)
            small = asyncio.create_task(ask(batcher, "small", 1))
            await asyncio.sleep(0)
            held.let_go.set()
            await asyncio.gather(large, small)

    asyncio.run(run())
    assert order == ["small", "large"]


def test_a_full_queue_says_when_to_come_back(model: seqloom.Model) -> None:
    """Ten texts wait for a batcher that has not begun; the eleventh has no room."""

    async def run() -> None:
        batcher = Batcher(Metrics(), queue=10)
        first = asyncio.create_task(batcher.run(search(model, ["the cat"] * 10, max_length=20), "a"))
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="the queue has room for 10; try again in") as refused:
            await batcher.run(search(model, ["the cat"], max_length=20), "b")
        assert 1 <= (refused.value.wait or 0) <= 60
        batcher.start()
        try:
            assert len(await first) == 10
            assert len(await batcher.run(search(model, ["the cat"], max_length=2), "b")) == 1
        finally:
            batcher.stop()

    asyncio.run(run())


def test_who_leaves_leaves_no_backlog(model: seqloom.Model) -> None:
    async def run() -> None:
        with batching(held := Held()) as batcher:
            asked = [
                asyncio.create_task(
                    batcher.run(search(model, ["the cat"], max_length=100, seed=n, sample=True), f"{n}")
                )
                for n in range(1000)
            ]
            await asyncio.to_thread(held.begun.wait)  # some are in work, and some wait
            for task in asked:
                task.cancel()
            gone = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in gone)
            assert batcher.backlog == 0
            held.let_go.set()
            assert len(await batcher.run(search(model, ["the dog"], max_length=3), "next")) == 1

    asyncio.run(run())


def test_one_poisoned_item_fails_alone(model: seqloom.Model) -> None:
    calls: list[int] = []

    def measure(_: Any, items: list[Any]) -> list[Result]:
        calls.append(len(items))
        if "poison" in items:
            raise RunError("this one cannot be read")
        return [Quantity(float(len(item))) for item in items]

    async def run() -> list[Any]:
        with batching(held := Held()) as batcher:
            asked = [work(model, [item], measure) for item in ("a", "bb", "poison", "dddd")]
            return await ask_at_once(batcher, held, model, asked)

    one, two, three, four = asyncio.run(run())
    assert [one[0].value, two[0].value, four[0].value] == [1.0, 2.0, 4.0]
    assert str(three) == "this one cannot be read"
    assert calls == [4, 1, 1, 1, 1]  # together, then each by itself


def test_who_leaves_does_not_leave_a_fault_to_others(model: seqloom.Model) -> None:
    """The text at fault is gone when the step with both of them fails, and the other one has an answer."""
    begun, let_go = threading.Event(), threading.Event()

    def measure(_: Any, items: list[Any]) -> list[Result]:
        if "poison" not in items:
            return [Quantity(float(len(item))) for item in items]
        begun.set()
        assert let_go.wait(600)
        raise RunError("this one cannot be read")

    async def run() -> list[Result]:
        batcher = Batcher(Metrics())
        poison, other = (
            asyncio.create_task(batcher.run(work(model, [item], measure), "c")) for item in ("poison", "bb")
        )
        await asyncio.sleep(0)
        batcher.start()
        try:
            await asyncio.to_thread(begun.wait)
            poison.cancel()
            await asyncio.gather(poison, return_exceptions=True)
            let_go.set()
            return await other
        finally:
            batcher.stop()

    assert asyncio.run(run()) == [Quantity(2.0)]


def test_one_poisoned_line_of_a_search_fails_alone(tmp_path: Path) -> None:
    """A token whose vector is not a number: the scores of the line that reads it are not, either."""
    folder = make_run(tmp_path / "lm", "language-model")
    model = seqloom.load(folder)
    expected = {text: model.generate(text, max_length=12).text for text in ("the cat", "a dog sees")}
    poison = model.tokenizer.encode("horse").ids[0]
    network: Any = model.network
    with torch.no_grad():
        network.embedding.weight[poison] = torch.nan
        network.output.weight = torch.nn.Parameter(network.output.weight.nan_to_num(0.0).clone())
    never = {text: model.generate(text, max_length=12).text for text in ("the cat", "a dog sees")}

    async def run() -> list[Any]:
        with batching(held := Held()) as batcher:
            texts = ["the cat", "a dog sees", "the horse", "the cat"]
            asked = [search(model, [text], max_length=12) for text in texts]
            return await ask_at_once(batcher, held, model, asked)

    one, two, three, four = asyncio.run(run())
    assert one[0].text == four[0].text == never["the cat"]
    assert two[0].text == never["a dog sees"]
    assert "are not numbers (NaN)" in str(three)
    assert {*expected} == {*never}


def test_tokens_are_told_once_even_if_a_line_is_begun_again(model: seqloom.Model) -> None:
    """Scores are damaged in the middle of a search of two lines: both are begun anew, and nothing is told twice."""

    class Damaged(LocalComputer):
        steps = 0

        def step(self, group: int, *given: Any) -> Any:
            self.steps += 1
            if self.steps == 4:
                self._groups[group]._search._scores.fill_(torch.nan)  # type: ignore[attr-defined]
            return super().step(group, *given)

    async def run() -> None:
        batcher, heard = Batcher(Metrics(), computers=[Damaged()]), []
        other = asyncio.create_task(batcher.run(search(model, ["a dog"], max_length=30), "d"))
        await asyncio.sleep(0)
        stream = batcher.stream(search(model, ["the cat"], max_length=30), "c")
        batcher.start()  # both are there
        try:
            async for part in stream:
                if not isinstance(part, Token):
                    [result] = part
                    continue
                heard.append(part)
            assert result.text == model.generate("the cat", max_length=30).text
            assert [token.score for token in heard] == pytest.approx(result.token_scores, abs=1e-5)
            assert (await other)[0].text == model.generate("a dog", max_length=30).text
        finally:
            batcher.stop()

    asyncio.run(run())


def test_groups_beyond_the_active_ones_have_their_turn(model: seqloom.Model) -> None:
    """Twenty kinds of search at once, each of several lines: more than are in work at the same time."""

    async def run() -> list[Any]:
        with batching() as batcher:
            asked = (
                batcher.run(
                    search(model, ["the cat", "a dog"], max_length=20, sample=True, temperature=1 + n / 10), "c"
                )
                for n in range(12)
            )
            return await asyncio.gather(*asked)

    for n, found in enumerate(asyncio.run(run())):
        alone = model.generate(["the cat", "a dog"], max_length=20, sample=True, temperature=1 + n / 10)
        assert [one.text for one in found] == [one.text for one in alone]


def test_what_was_accepted_is_answered_before_the_end(model: seqloom.Model) -> None:
    async def run() -> None:
        batcher = Batcher(Metrics())
        batcher.start()
        asked = [asyncio.create_task(batcher.run(search(model, ["the cat"], max_length=9), "c")) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.to_thread(batcher.stop)
        assert len(await asyncio.gather(*asked)) == 20
        with pytest.raises(Exception, match="about to end"):
            await batcher.run(search(model, ["the cat"], max_length=9), "c")

    asyncio.run(run())


@pytest.mark.parametrize("family", ["recurrent", "convolutional"])
@pytest.mark.parametrize("options", [{}, {"beam": 3, "nbest": 2}, {"sample": True, "nbest": 2}])
def test_lines_of_other_families_join_and_leave_as_well(tmp_path: Path, family: str, options: dict[str, Any]) -> None:
    """Sources of several lengths come in one after the other, while the others are searched for."""
    model = seqloom.load(make_run(tmp_path / "mt", "translation", family))
    texts = ["the cat" + " fish" * (2 * n) for n in range(5)]
    wanted = read_search(options)

    async def ask(batcher: Batcher, number: int, text: str) -> Any:
        await asyncio.sleep(number / 100)
        plan = plan_translation(model._predictor, [text], wanted, align=False)
        return (await batcher.run(SearchWork(model._predictor, plan), f"{number % 3}"))[0]

    async def run() -> list[Any]:
        with batching() as batcher:
            return await asyncio.gather(*(ask(batcher, number, text) for number, text in enumerate(texts)))

    for text, found in zip(texts, asyncio.run(run()), strict=True):
        alone = model.translate(text, align=False, **options)
        assert [one.text for one in (found, *found.alternatives)] == [one.text for one in (alone, *alone.alternatives)]
        assert found.score == pytest.approx(alone.score, abs=1e-5)
