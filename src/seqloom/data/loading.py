"""Batches made ahead of time, in a thread, while the model works on the one before."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

B = TypeVar("B")


class Loader(Generic[B]):
    """The batches of steps `start`, `start` + 1, …, `stop` − 1 (without `stop`, no end), `ahead` of them made early.

    A batch is a function of its step, so there is nothing to skip and nothing to save: to resume is to start here. What
    goes wrong in the thread is raised where the batch is asked for. Leaving the `with` block ends the thread.
    """

    def __init__(self, make: Callable[[int], B], start: int, stop: int | None = None, ahead: int = 4) -> None:
        self._make, self._next, self._stop = make, start, stop
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="seqloom-loader")
        self._ready: deque[Future[B]] = deque()
        self.waited = 0.0
        """Seconds that the caller has spent waiting for batches."""
        for _ in range(ahead):
            self._order_next()

    def __iter__(self) -> Iterator[B]:
        return self

    def __next__(self) -> B:
        if not self._ready:
            self.close()
            raise StopIteration
        started = time.perf_counter()
        try:
            batch = self._ready.popleft().result()
        except BaseException:
            self.close()
            raise
        self.waited += time.perf_counter() - started
        self._order_next()
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop making batches; returns when the thread has ended."""
        self._ready.clear()
        self._thread.shutdown(cancel_futures=True)

    def _order_next(self) -> None:
        if self._stop is None or self._next < self._stop:
            self._ready.append(self._thread.submit(self._make, self._next))
            self._next += 1
