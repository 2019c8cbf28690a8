"""What every dialect asks: results for texts, from the right model, within the limits."""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from seqloom.decode.greedy import Token
from seqloom.predict.results import Result, as_plain
from seqloom.serve.batcher import Batcher
from seqloom.serve.faults import TooSlowError
from seqloom.serve.limits import Limits
from seqloom.serve.log import Log, current
from seqloom.serve.metrics import Metrics
from seqloom.serve.models import Models, Served
from seqloom.serve.pace import Pace, set_pace
from seqloom.serve.verbs import prepare
from seqloom.serve.work import SearchWork, Work
from seqloom.serve.workers import Call, Worker, WorkerFaultError, call


@dataclass(frozen=True)
class Ask:
    """What a request asks for."""

    verb: str
    texts: Sequence[Any]
    """Each is a str, a pair of them, or a list of words."""
    options: dict[str, Any]
    model: str | None = None
    pair: tuple[str, str] | None = None
    """The languages to translate from and to."""


@dataclass(frozen=True)
class Answer:
    """The results of a request, and the model that gave them."""

    model: Served
    results: list[Any]


class Service:
    """Models, a batcher and limits."""

    def __init__(
        self,
        models: Models,
        limits: Limits | None = None,
        *,
        queue: int = 4096,
        log: Log | None = None,
        pace: Pace | None = None,
        begin: Call = call,
    ) -> None:
        """`pace` says how many workers compute, each called by `begin`; by default, this process does."""
        self.models, self.limits = models, limits or Limits()
        self.metrics, self.log = Metrics(), log or Log()
        self.pace = pace or set_pace(1)
        workers = [Worker(begin) for _ in range(self.pace.workers)] if self.pace.workers > 1 else ()
        self.batcher = Batcher(self.metrics, queue=queue, report=self.report, computers=workers)
        self._threads = ThreadPoolExecutor(2, "seqloom-reading")  # tokenisers; the batcher's thread has better to do
        self.draining = False
        self.explored: tuple[str, ...] = ()
        """The names of the models that can be looked into."""

    def start(self) -> None:
        """Begin to compute."""
        self.batcher.start([model.predictor for model in self.models])

    def stop(self) -> None:
        """Compute what was accepted, then end."""
        self.draining = True
        self.batcher.stop()
        self._threads.shutdown()

    @property
    def health(self) -> dict[str, str | int]:
        """Whether requests are taken, and how many processes compute, with how many threads each."""
        status = "draining" if self.draining else "ready"
        return {"status": status, "workers": self.pace.workers, "threads": self.pace.threads}

    @property
    def backlog(self) -> int:
        """How many texts wait or are in work."""
        return self.batcher.backlog

    def describe(self) -> list[str]:
        """What is served, and what an operator should know about it."""
        said = []
        for model in self.models:
            said += [f"serving {model}", *(f"note: {note}" for note in model.notes)]
        return [*said, str(self.pace)]

    def reload(self) -> list[str]:
        """Load anew what has changed, and say so."""
        return self.models.reload()

    async def write_metrics(self) -> str:
        """Numbers in Prometheus's text format."""
        return self.metrics.write(
            {
                "seqloom_backlog_lines": ("Lines that wait or are in work.", float(self.backlog)),
                "seqloom_workers": ("Processes that compute.", float(self.pace.workers)),
                "seqloom_models": ("Models that are served.", float(len(list(self.models)))),
                "seqloom_draining": ("1 while the server is about to end.", float(self.draining)),
            }
        )

    async def ask(self, ask: Ask) -> Answer:
        """The results of a request."""
        model, work = await self._prepare(ask)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return Answer(model, await self.batcher.run(work, current.get().client))
        except TimeoutError:
            raise self._too_slow() from None

    async def prepare_search(self, ask: Ask) -> tuple[Served, SearchWork]:
        """The model and the lines of a search, which `stream` begins."""
        model, work = await self._prepare(ask)
        assert isinstance(work, SearchWork)
        return model, work

    def stream(self, work: SearchWork) -> AsyncGenerator[Token | list[Result]]:
        """The tokens of a search, which begins now, as they are found, then its results."""
        return self._limit_time(self.batcher.stream(work, current.get().client))

    async def _limit_time(self, stream: AsyncGenerator[Token | list[Result]]) -> AsyncGenerator[Token | list[Result]]:
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for part in stream:
                    yield part
        except TimeoutError:
            raise self._too_slow() from None
        finally:
            await stream.aclose()

    async def compute(self, function: Any, *given: Any) -> Any:
        """Call a function that takes a moment, such as reading a text, beside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *given)

    async def _prepare(self, ask: Ask) -> tuple[Served, Work]:
        self.limits.check_texts(ask.texts)
        self.limits.check_search(ask.options)
        model = self.models.find(ask.verb, ask.model, ask.pair)
        characters = sum(len(part) for text in ask.texts for part in ((text,) if isinstance(text, str) else text))
        current.get().noted |= {
            "verb": ask.verb,
            "model": model.name,
            "texts": len(ask.texts),
            "characters": characters,
        }
        labels = {"verb": ask.verb, "model": model.name}
        self.metrics.count("seqloom_texts_total", "Texts that were asked for.", len(ask.texts), **labels)
        self.metrics.count("seqloom_characters_total", "Characters of these texts.", characters, **labels)
        work = await self.compute(prepare, ask.verb, model.predictor, ask.texts, ask.options)
        return model, work

    def count_characters(self, verb: str) -> int:
        """The characters of all texts that a verb was asked for."""
        return int(self.metrics.total("seqloom_characters_total", verb=verb))

    def _too_slow(self) -> TooSlowError:
        return TooSlowError(f"the answer took longer than {self.limits.seconds} s; send less at once", wait=1)

    def report(self, error: BaseException) -> None:
        """Write down an error that nobody foresaw: where, not what about, since its words may hold a text."""
        if isinstance(error, WorkerFaultError):
            self.log.write("fault", error=error.kind, places=error.places[-5:])
            return
        place = error.__traceback__
        frames = []
        while place is not None:
            frames.append(f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}")
            place = place.tb_next
        self.log.write("fault", error=type(error).__name__, places=frames[-5:])


def write_plain(value: Any) -> Any:
    """A result as JSON can express it: as `--json` prints it, with null for what is not a finite number."""
    return _make_finite(as_plain(value))


def _make_finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case list():
            return [_make_finite(item) for item in value]
        case dict():
            return {name: _make_finite(item) for name, item in value.items()}
        case _:
            return value
