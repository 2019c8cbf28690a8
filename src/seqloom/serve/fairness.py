"""Whose line comes next: clients take turns, and so do the requests of a client.

A request of a thousand lines is a thousand turns of its client. A client with one line waits for one turn of each other
client, whatever these have sent before.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Lines that wait, by client and request."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, OrderedDict[int, deque[T]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for requests in self._clients.values():
            for lines in requests.values():
                yield from lines

    def put(self, client: str, request: int, line: T, *, first: bool = False) -> None:
        """Add a line of a client's request, as the last of this request or as its first."""
        lines = self._clients.setdefault(client, OrderedDict()).setdefault(request, deque())
        self._count += 1
        if first:
            lines.appendleft(line)
        else:
            lines.append(line)

    def peek(self) -> T:
        """The next line."""
        requests = next(iter(self._clients.values()))
        return next(iter(requests.values()))[0]

    def take(self) -> T:
        """Remove the next line; its request then waits for the others of its client, and its client for the others."""
        client, requests = next(iter(self._clients.items()))
        request, lines = next(iter(requests.items()))
        line = lines.popleft()
        self._count -= 1
        if lines:
            requests.move_to_end(request)
        else:
            del requests[request]
        if requests:
            self._clients.move_to_end(client)
        else:
            del self._clients[client]
        return line
