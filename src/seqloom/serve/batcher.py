"""The batcher: one thread computes, and requests of all clients become lines of its batches.

The thread goes round the groups that are in work (`groups.py`), a step of each at a time, so a long search does not
hold up a short one. Between steps, lines that are done leave, those of clients who left are dropped, and new ones come
in, in turn from all clients (`fairness.py`). At most eight groups are in work; if more wait, one that had its turn
takes no new lines, ends, and waits again.

If a step fails, each of its lines is computed once more by itself, so that only the one at fault fails.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Hashable
from itertools import count
from typing import Any

import torch

from seqloom.decode.greedy import Token
from seqloom.errors import SeqloomError
from seqloom.predict.results import Result
from seqloom.serve.faults import DrainingError, QueueFullError
from seqloom.serve.groups import TURN, Group, make_group
from seqloom.serve.metrics import Metrics
from seqloom.serve.work import Job, Line, Work

ACTIVE = 8
"""Groups that are in work at the same time."""


class Batcher:
    """Takes work from many requests, and computes it in one thread."""

    def __init__(
        self, metrics: Metrics, *, queue: int = 4096, report: Callable[[BaseException], None] | None = None
    ) -> None:
        """`queue` is how many lines may wait; `report` is told of errors that nobody foresaw."""
        self._metrics, self.limit, self._report = metrics, queue, report
        self._ready = threading.Condition()
        self._groups: dict[Hashable, Group] = {}
        self._active: dict[Hashable, Group] = {}
        self._numbers, self._alone = count(), count()
        self._left = 0
        """Lines that wait or are in work."""
        self._busy, self._answered = 1.0, 100.0
        """Seconds of work, and lines answered in them, of late."""
        self._ending = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to compute."""
        self._thread = threading.Thread(target=self._run, name="seqloom-batcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Compute what was accepted, then end."""
        with self._ready:
            self._ending = True
            self._ready.notify()
        if self._thread is not None:
            self._thread.join()

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
        with self._ready:
            if self._ending:
                raise DrainingError("the server is about to end; ask again in a moment", wait=1)
            if self._left + len(sizes) > self.limit:
                wait = min(60, 1 + int(self._left * self._busy / self._answered))
                raise QueueFullError(
                    f"{self._left:,} texts are waiting already, and the queue has room for {self.limit:,}; "
                    f"try again in {wait} s",
                    wait=wait,
                )
            self._left += len(sizes)
            for index, size in enumerate(sizes):
                self._put(work.find_key(index), Line(job, index, size))
            self._ready.notify()
        return job

    def _put(self, key: Hashable, line: Line, *, first: bool = False) -> None:
        if key not in self._groups:
            self._groups[key] = make_group(line)
        self._groups[key].waiting.put(line.job.client, line.job.number, line, first=first)

    def _cancel(self, job: Job) -> None:
        """Drop what is left of a job."""
        with self._ready:
            if not job.cancelled:
                job.cancelled = True
                self._left -= job.left
                job.left = 0
                self._ready.notify()

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._groups and not self._ending:
                    self._ready.wait()
                if not self._groups:
                    return
                self._choose_active()
                turns = list(self._active.items())
            with torch.inference_mode():
                for key, group in turns:
                    self._take_turn(key, group)

    def _choose_active(self) -> None:
        """Let groups come into work: first those whose next client has the fewest lines there."""
        if len(self._active) == ACTIVE or len(self._active) == len(self._groups):
            return
        lines = Counter(line.job.client for group in self._active.values() for line in group.working)
        waiting = [key for key, group in self._groups.items() if key not in self._active and group.waiting]
        waiting.sort(key=lambda key: lines[self._groups[key].waiting.peek().job.client])
        for key in waiting[: ACTIVE - len(self._active)]:
            self._active[key] = self._groups[key]
            self._groups[key].steps = 0

    def _take_turn(self, key: Hashable, group: Group) -> None:
        with self._ready:
            tired = group.steps >= TURN and len(self._groups) > len(self._active)
            while group.waiting and not tired:
                if group.waiting.peek().job.cancelled:
                    group.waiting.take()
                elif not self._admit(group):
                    break
            working = group.working
        group.steps += 1
        if working:
            started = time.perf_counter()
            try:
                group.step(self._finish)
            except Exception as error:
                self._divide(key, group, working, error)
            seconds = time.perf_counter() - started
            self._metrics.observe_batch(len(working), sum(line.size for line in working), seconds)
            self._busy += seconds
            if self._busy > 30:
                self._busy, self._answered = self._busy / 2, self._answered / 2
        with self._ready:
            if not group.working:
                self._active.pop(key, None)
                if not group.waiting:
                    self._groups.pop(key, None)
                elif key in self._groups:  # it waits behind the others
                    self._groups[key] = self._groups.pop(key)

    def _admit(self, group: Group) -> bool:
        line = group.waiting.peek()
        if not group.admit(line):
            return False
        group.waiting.take()
        return True

    def _finish(self, line: Line, found: Any) -> None:
        job = line.job
        with self._ready:
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
            self._fail(job, error)

    def _divide(self, key: Hashable, group: Group, lines: list[Line], error: Exception) -> None:
        """Compute each line of a step that failed by itself; a line that was by itself has failed."""
        with self._ready:
            self._active.pop(key, None)
            self._groups.pop(key, None)
            for line in group.waiting:
                self._put(key, line)
            lines = [line for line in lines if not line.job.cancelled]
            if len(lines) > 1:
                for line in lines:
                    line.again, line.alone = line.told, True
                    self._put(("alone", next(self._alone)), line, first=True)
                return
        for line in lines:
            self._fail(line.job, error)

    def _fail(self, job: Job, error: Exception) -> None:
        if not isinstance(error, SeqloomError) and self._report is not None:
            self._report(error)
        with self._ready:
            self._left -= job.left
            job.left, job.cancelled = 0, True
        job.fail(error)
