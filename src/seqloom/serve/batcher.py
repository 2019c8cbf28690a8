"""The batcher: requests of all clients become lines, and lines with the same model and options are computed together.

Here is what waits and who takes turns (`fairness.py`), how much may wait, and what becomes of results. Lanes compute
(`lanes.py`): one thread in this process or, with workers, a thread for each of them.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from seqloom.decode.greedy import Token
from seqloom.errors import RunError, SeqloomError
from seqloom.predict.predictor import Predictor
from seqloom.predict.results import Result
from seqloom.serve.computer import Computer, LocalComputer, WorkerLostError
from seqloom.serve.fairness import FairQueue
from seqloom.serve.faults import DrainingError, QueueFullError
from seqloom.serve.lanes import Lane
from seqloom.serve.metrics import Metrics
from seqloom.serve.work import Job, Kind, Line, Work


@dataclass(eq=False)
class Pile:
    """Lines with the same key, which can be computed together."""

    predictor: Predictor
    kind: Kind
    lines: FairQueue[Line] = field(default_factory=FairQueue)
    """Those that wait."""
    working: int = 0
    """How many are in work, in all lanes."""


class Batcher:
    """Takes work from many requests."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        queue: int = 4096,
        report: Callable[[BaseException], None] | None = None,
        computers: Sequence[Computer] = (),
    ) -> None:
        """`queue` is how many lines may wait; `report` is told of errors that nobody foresaw.

        `computers` compute, each for a lane; without any, this process does.
        """
        self._metrics, self.limit, self._report = metrics, queue, report
        self.ready = threading.Condition(threading.RLock())
        """Guards what waits and what is in work, here and in the lanes."""
        self.piles: dict[Hashable, Pile] = {}
        self.ending = False
        self._computers = list(computers or [LocalComputer()])
        self._lanes = [Lane(self, computer, len(self._computers)) for computer in self._computers]
        self._numbers, self._alone = count(), count()
        self._left = 0
        """Lines that wait or are in work."""
        self._busy, self._answered = 1.0, 100.0
        """Seconds of work, and lines answered in them, of late."""
        self._threads: list[threading.Thread] = []

    def start(self, predictors: Sequence[Predictor] = ()) -> None:
        """Begin to compute; workers have these models at hand."""
        try:
            for computer in self._computers:
                computer.start(predictors)
            for computer in self._computers:
                computer.wait()
        except BaseException as error:  # also Ctrl-C: whoever started workers waits for them at the end
            for computer in self._computers:
                computer.stop()
            if isinstance(error, OSError | WorkerLostError):
                raise RunError(
                    "a worker ended as soon as it had begun: if memory was short, give fewer workers"
                ) from None
            raise
        for lane in self._lanes:
            self._threads.append(threading.Thread(target=lane.run, name="seqloom-batcher", daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Compute what was accepted, then end."""
        with self.ready:
            self.ending = True
            self.ready.notify_all()
        for thread in self._threads:
            thread.join()
        for computer in self._computers:
            computer.stop()

    @property
    def waiting(self) -> bool:
        """Whether lines wait that nobody computes."""
        return any(pile.lines for pile in self.piles.values())

    @property
    def backlog(self) -> int:
        """How many lines wait or are in work."""
        return self._left

    async def run(self, work: Work, client: str) -> list[Result]:
        """The results of some work; if the one who waits is cancelled, so is the work."""
        job = self._submit(work, client, None)
        try:
            return await job.done
        finally:
            self._cancel(job)

    def stream(self, work: Work, client: str) -> AsyncGenerator[Token | list[Result]]:
        """The tokens of some work, which begins now, as they are found, then its results."""
        heard: asyncio.Queue[Token | None] = asyncio.Queue()
        job = self._submit(work, client, heard.put_nowait)
        job.done.add_done_callback(lambda _: heard.put_nowait(None))
        return self._listen(job, heard)

    async def _listen(self, job: Job, heard: asyncio.Queue[Token | None]) -> AsyncGenerator[Token | list[Result]]:
        try:
            while (token := await heard.get()) is not None:
                yield token
            yield job.done.result()
        finally:
            self._cancel(job)

    def _submit(self, work: Work, client: str, hear: Callable[[Token], None] | None) -> Job:
        loop = asyncio.get_running_loop()
        sizes = work.sizes
        job = Job(next(self._numbers), client, work, loop, loop.create_future(), hear)
        job.found, job.left = [None] * len(sizes), len(sizes)
        if not sizes:
            job.done.set_result(work.finish([]))
            return job
        with self.ready:
            if self.ending:
                raise DrainingError("the server is about to end; ask again in a moment", wait=1)
            if self._left + len(sizes) > self.limit:
                wait = min(60, 1 + int(self._left * self._busy / self._answered / len(self._lanes)))
                raise QueueFullError(
                    f"{self._left:,} texts are waiting already, and the queue has room for {self.limit:,}; "
                    f"try again in {wait} s",
                    wait=wait,
                )
            self._left += len(sizes)
            for index, size in enumerate(sizes):
                self._put(work.find_key(index), Line(job, index, size))
            self.ready.notify_all()
        return job

    def _put(self, key: Hashable, line: Line, *, first: bool = False) -> None:
        if key not in self.piles:
            work = line.job.work
            self.piles[key] = Pile(work.predictor, work.get_kind(line.index))
        self.piles[key].lines.put(line.job.client, line.job.number, line, first=first)

    def put_back(self, line: Line) -> None:
        """Let a line wait again, as the first of its request."""
        self._put(line.job.work.find_key(line.index), line, first=True)

    def put_alone(self, line: Line) -> None:
        """Let a line wait again, to be computed by itself."""
        self._put(("alone", next(self._alone)), line)

    def put_away(self, key: Hashable) -> None:
        """Forget a pile that nobody needs; if lines wait there, it waits behind the others."""
        pile = self.piles.pop(key, None)
        if pile is not None and (pile.lines or pile.working):
            self.piles[key] = pile

    def observe(self, lines: int, size: int, seconds: float, steps: int) -> None:
        """Note how long a lane was busy with steps of the same lines."""
        for _ in range(steps):
            self._metrics.observe_batch(lines, size, seconds / steps)
        with self.ready:
            self._busy += seconds
            if self._busy > 30:
                self._busy, self._answered = self._busy / 2, self._answered / 2

    def note_loss(self, error: WorkerLostError) -> None:
        """Note that a worker has ended."""
        if self._report is not None:
            self._report(error)
        self._metrics.count("seqloom_worker_losses_total", "Workers that ended before the server did.")

    def _cancel(self, job: Job) -> None:
        """Drop what is left of a job."""
        with self.ready:
            if not job.cancelled:
                job.cancelled = True
                self._left -= job.left
                job.left = 0
                self.ready.notify_all()

    def finish(self, line: Line, found: Any) -> None:
        """Take what was found for a line; the last of a request gives its results."""
        job = line.job
        with self.ready:
            if job.cancelled:
                return
            job.found[line.index] = found
            job.left -= 1
            self._left -= 1
            self._answered += 1
            if job.left:
                return
        try:
            job.succeed(job.work.finish(job.found))
        except Exception as error:
            self.fail(job, error)

    def fail(self, job: Job, error: Exception) -> None:
        """Give up a request, and say why."""
        if not isinstance(error, SeqloomError) and self._report is not None:
            self._report(error)
        with self.ready:
            self._left -= job.left
            job.left, job.cancelled = 0, True
        job.fail(error)
