"""One line of JSON for each request: who, what, how much, how long; never a text, nor a query, which may hold one."""

import json
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TextIO


@dataclass
class Record:
    """What is noted of a request."""

    method: str
    path: str
    client: str = ""
    status: int = 0
    started: float = field(default_factory=time.perf_counter)
    noted: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long ago it came in."""
        return time.perf_counter() - self.started


current: ContextVar[Record] = ContextVar("current")
"""The record of the request that is being answered."""


class Log:
    """Writes lines of JSON."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def write(self, event: str, **fields: Any) -> None:
        """One line."""
        now = time.time()
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        line = json.dumps({"time": moment, "event": event, **fields}, ensure_ascii=True)
        print(line, file=self._stream or sys.stderr, flush=True)

    def write_request(self, record: Record) -> None:
        """The line of a request that was answered, refused or left."""
        self.write(
            "request",
            method=record.method,
            path=record.path,
            status=record.status,
            client=record.client,
            seconds=round(record.seconds, 4),
            **record.noted,
        )
