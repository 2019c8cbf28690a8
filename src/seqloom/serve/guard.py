"""What stands before every route: only this machine's browser, with the token of this start, reaches the model.

Who is kept out, and how:

- other machines: the socket is bound to the loopback address;
- other users of this machine: every answer about the model needs the token, which is drawn anew at each start;
- other web sites in the same browser: `Host` must be ours (a name that somebody made to resolve to 127.0.0.1 is not),
  and `Origin` and `Sec-Fetch-Site`, where the browser sends them, must say that our own page asks;
- scripts that a text might smuggle in: the content security policy names the page's own scripts, two of them by hash;
- endless requests: a body has a limit, whether its length was announced or not.

The page's files hold no secret and are sent to anyone who may ask at all.
"""

import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from seqloom.page.bundle import served_policy

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

API = "/seqloom/v1"
"""The beginning of every address that needs the token."""
MAX_BODY = 1 << 20
"""Bytes of a request: far more than any text that can be traced."""


def draw_token() -> str:
    """A token that nobody can guess: 256 random bits."""
    return secrets.token_urlsafe(32)


class Guard:
    """An ASGI application around another one: it answers bad requests itself and adds headers to all answers."""

    def __init__(self, app: App, *, port: int, token: str) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._headers = [
            (b"content-security-policy", served_policy().encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket: we have none
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        fault = self._judge(scope)
        if fault is not None:
            await _refuse(send_guarded, *fault)
            return
        body = await _read_body(receive)
        if body is None:
            await _refuse(send_guarded, 413, _TOO_LARGE)
            return
        await self._app(scope, _Replay(body, receive), send_guarded)

    def _judge(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the sentence of a request that is refused."""
        headers = read_headers(scope)
        if headers is None:
            return 400, "The request has a header twice that may be there only once."
        if headers.get("host") not in self._hosts:
            return 421, "This server answers only under the address that it printed."
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins:
            return 403, "Another page asked; only this server's own page may."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "Another page asked; only this server's own page may."
        if scope["method"] not in ("GET", "POST"):
            return 405, "This server answers GET and POST."
        if not headers.get("content-length", "0").isdecimal() or int(headers.get("content-length", "0")) > MAX_BODY:
            return 413, _TOO_LARGE
        if not scope["path"].startswith(API):
            return None
        given = headers.get("authorization", "").encode()
        if not secrets.compare_digest(given, b"Bearer " + self._token):
            return 401, (
                "The token of this server is missing or is an old one; open the address that `seqloom explore` printed."
            )
        if scope["method"] == "POST" and headers.get("content-type", "").partition(";")[0] != "application/json":
            return 415, "The request must be JSON."
        return None


_TOO_LARGE = f"The request is larger than {MAX_BODY:,} bytes; send a shorter text."
_ONCE = ("host", "origin", "authorization", "content-length", "content-type", "sec-fetch-site")


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body; None once it passes its limit."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


class _Replay:
    """What the application receives: the body that was read, then whatever comes next."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def read_headers(scope: Scope) -> dict[str, str] | None:
    """The headers of a request; None if one that decides who asks is there twice."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        if name in found and name in _ONCE:
            return None
        found[name] = raw_value.decode("latin-1")
    return found


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"error": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
