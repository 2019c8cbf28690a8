"""What stands before every route of `seqloom serve`: who may ask, how much, and that nobody is waited for who has left.

Refused, each in the form of its dialect, before any work: other web sites (`Origin`), names that were made to resolve
to this machine (`Host`, on the loopback address), doubled headers, bodies that are too large, compressed or too slow,
and requests without a key where keys are needed. A client who leaves cancels its request. Every answer is counted and
logged.
"""

import asyncio
import json
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import parse_qs

from seqloom.serve.desk import Desk
from seqloom.serve.faults import DrainingError, KeyFaultError, RefusalError
from seqloom.serve.guard import App, Message, Receive, Scope, Send, read_headers
from seqloom.serve.keys import Keys
from seqloom.serve.log import Record, current
from seqloom.serve.metrics import SECONDS
from seqloom.serve.page import find_policy, is_public

OPEN = ("/health", "/health/live", "/health/ready")
"""Addresses that need no key, and that answer while the server is about to end."""
_METHODS = ("GET", "POST", "HEAD")
_PATIENCE = 30.0
"""Seconds in which a body must have arrived."""
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
Write = Callable[[str, int, str], dict[str, Any]]


class Gate:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: App,
        desk: Desk,
        write: Write,
        *,
        keys: Keys | None = None,
        hosts: Collection[str] | None = None,
    ) -> None:
        """`write` makes a refusal in the form that an address has; `hosts` are the names to be called by, None: any."""
        self._app, self._desk, self._write, self._keys = app, desk, write, keys
        self._hosts = hosts
        self.asked = 0
        """Requests that are being answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        record = Record(scope["method"], scope["path"], (scope.get("client") or ("", 0))[0])
        current.set(record)
        self.asked += 1
        try:
            await self._answer(scope, receive, self._note(send, record), record)
        finally:
            self.asked -= 1
            self._count(record, getattr(scope.get("route"), "path", "other"))

    def _note(self, send: Send, record: Record) -> Send:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                more = [(b"connection", b"close")] if self._desk.draining else []
                policy = [(b"content-security-policy", find_policy(record.path).encode())]
                message["headers"] = [*message.get("headers", ()), *_HEADERS, *policy, *more]
            await send(message)

        return note

    async def _answer(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        try:
            headers = self._judge(scope)
            body = await self._read_body(receive)
            if body is None:
                record.status = 499  # the client left; nginx's number for it
                return
            path = scope["path"]
            if path not in OPEN and not (is_public(path) and scope["method"] != "POST"):
                record.client = self._find_client(scope, headers, body) or record.client
        except RefusalError as error:
            await self._refuse(scope, send, error)
            return
        await self._run(scope, body, receive, send, record)

    def _judge(self, scope: Scope) -> dict[str, str]:
        """The headers of a request that may be read on."""
        headers = read_headers(scope)
        if headers is None:
            raise RefusalError("The request has a header twice that may be there only once.")
        host = headers.get("host", "")
        if self._hosts is not None and host.rpartition(":")[0].lower() not in self._hosts and host not in self._hosts:
            raise RefusalError("This server answers only under the address that it was started with.", status=421)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise RefusalError("Another web page asked; only this server's own page may.", status=403)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RefusalError("Another web page asked; only this server's own page may.", status=403)
        if scope["method"] not in _METHODS:
            raise RefusalError("This server answers GET and POST.", status=405)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise RefusalError("The request is compressed; send it as it is.", status=415)
        if "content-length" in headers and "transfer-encoding" in headers:
            raise RefusalError("The request says its length twice, in two ways; send one of them.")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()) or int(length) > self._desk.limits.body:
            raise self._too_large()
        if self._desk.draining and scope["path"] not in OPEN:
            raise DrainingError("The server is about to end; ask again in a moment.", wait=1)
        return headers

    def _too_large(self) -> RefusalError:
        return RefusalError(f"The request is larger than {self._desk.limits.body:,} bytes; send less.", status=413)

    async def _read_body(self, receive: Receive) -> bytes | None:
        """The body; None if the client left."""
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(_PATIENCE):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._desk.limits.body:
                        raise self._too_large()
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RefusalError("The request did not arrive in time.", status=408) from None
        return b"".join(parts)

    def _find_client(self, scope: Scope, headers: dict[str, str], body: bytes) -> str | None:
        """The name of the key that was given; None where keys are not needed."""
        if self._keys is None:
            return None
        name = self._keys.find(_find_key(scope, headers, body) or "")
        if name is None:
            status = 403 if scope["path"] in ("/translate", "/detect", "/languages") or "/v2/" in scope["path"] else 401
            raise KeyFaultError("The key is missing or wrong; ask whoever runs this server for one.", status=status)
        return name

    async def _refuse(self, scope: Scope, send: Send, error: RefusalError) -> None:
        body = json.dumps(self._write(scope["path"], error.status, str(error))).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if error.wait is not None:
            headers.append((b"retry-after", str(error.wait).encode()))
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: Send, record: Record) -> None:
        """Run the application until it is done or the client has left."""
        given: list[bytes] = [body]
        left = asyncio.Event()

        async def replay() -> Message:
            if given:
                return {"type": "http.request", "body": given.pop(), "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        answering, watching = asyncio.ensure_future(self._app(scope, replay, send)), asyncio.ensure_future(watch())
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                left.set()
                record.status = record.status or 499
                answering.cancel()
            await answering
        except asyncio.CancelledError:
            if not left.is_set():
                raise
        finally:
            watching.cancel()
            answering.cancel()

    def _count(self, record: Record, path: str) -> None:
        metrics = self._desk.metrics
        metrics.count(
            "seqloom_requests_total", "Requests, by address and status.", path=path, status=str(record.status)
        )
        metrics.observe("seqloom_request_seconds", "How long answers took.", record.seconds, SECONDS, path=path)
        if record.status in (401, 403, 408, 413, 429, 503):
            metrics.count("seqloom_refusals_total", "Requests that were refused.", status=str(record.status))
        if record.path not in OPEN:
            self._desk.log.write_request(record)


def _find_key(scope: Scope, headers: dict[str, str], body: bytes) -> str | None:
    """The key of a request: in its header or, as LibreTranslate's clients have it, among the fields."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    if kind.lower() in ("bearer", "deepl-auth-key"):
        return key.strip()
    if scope["path"] not in ("/translate", "/detect", "/languages"):
        return None
    query: dict[str, list[str]] = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    form = headers.get("content-type", "").partition(";")[0]
    if "api_key" in query:
        return query["api_key"][0]
    if form == "application/x-www-form-urlencoded":
        return next(iter(parse_qs(body.decode("latin-1")).get("api_key", ())), None)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    found = value.get("api_key") if isinstance(value, dict) else None
    return found if isinstance(found, str) else None
