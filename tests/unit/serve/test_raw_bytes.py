"""What strangers write to the socket itself: bytes that are no request, half a request, and none at all."""

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from urllib.parse import urlsplit

import httpx
import pytest

from seqloom.serve import gate
from unit.serve.served import Served, make_folders

pytestmark = pytest.mark.usefixtures("as_users_run")  # whole models: shapes are checked elsewhere

TRANSLATE, GENERATE = "/seqloom/v1/translate", "/seqloom/v1/generate"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folders = make_folders(tmp_path_factory.mktemp("served"), ("translation", "language-model"))
    with Served(folders, body=100_000) as made:
        yield made


HEAD = f"POST {TRANSLATE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
BODY = b'{"texts": "a"}'
RAW: dict[str, bytes] = {
    "a length that is too small": HEAD + b"Content-Length: 3\r\n\r\n" + BODY,
    "two lengths": HEAD + b"Content-Length: 14\r\nContent-Length: 2\r\n\r\n" + BODY,
    "a length and pieces": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil",
    "pieces of no size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY,
    "a piece of 2⁶⁴ bytes": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 16 + b"f\r\n" + BODY,
    "pieces that are compressed": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a giant that waits to be asked": HEAD + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n",
    "U+0000 in a header": HEAD + b"X-A: a\0b\r\n\r\n",
    "a line break alone in a header": HEAD + b"X-A: a\rSet-Cookie: b=c\r\n\r\n",
    "a header in two lines": HEAD + b"X-A: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "a space before the colon": HEAD + b"Content-Length : 14\r\n\r\n" + BODY,
    "a header of 200,000 bytes": HEAD + b"X-A: " + b"a" * 200_000 + b"\r\n\r\n",
    "10,000 headers": HEAD + b"X-A: a\r\n" * 10_000 + b"\r\n",
    "an address of 200,000 bytes": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no name at all": b"GET /health HTTP/1.1\r\n\r\n",
    "the address of another server": b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an echo": b"TRACE /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a method of 10,000 letters": b"A" * 10_000 + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another version": b"GET /none HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64 + b"\r\n\r\n",
    "a web socket": b"GET /v1/none HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
}


@pytest.fixture(scope="module")
def place(served: Served) -> Iterator[tuple[str, int]]:
    with served.listen() as address:
        found = urlsplit(address)
        yield str(found.hostname), found.port or 0


@pytest.mark.parametrize("name", RAW)
def test_bytes_that_are_no_request_are_refused(served: Served, place: tuple[str, int], name: str) -> None:
    """As no client would send them: each is refused, and none brings the server to say what it was told to say."""
    with closing(socket.create_connection(place)) as sent:
        sent.settimeout(1)  # a few stay open for the next request
        with suppress(ConnectionError):  # it may be refused before all of it has arrived
            sent.sendall(RAW[name])
        answer = b""
        with suppress(ConnectionError, TimeoutError):
            while part := sent.recv(1 << 16):
                answer += part
    heads = re.findall(rb"^HTTP/1\.1 (\d+)", answer, re.M)
    assert heads or not answer
    assert all(head.startswith(b"4") or head in (b"501", b"505") for head in heads), answer
    assert b"cookie" not in answer.lower()
    assert httpx.get(f"http://{place[0]}:{place[1]}/health", timeout=60).status_code == 200
    assert '"event": "fault"' not in served.heard.getvalue()


def test_what_is_said_of_a_client_is_one_line_of_the_log(served: Served, place: tuple[str, int]) -> None:
    """A proxy on this machine is believed about the address of a client, but cannot write into the log."""
    forged = '1.2.3.4", "event": "forged'
    address = f"http://{place[0]}:{place[1]}/v1/models"
    asked = re.compile('.*"event": "request".*"path": "/v1/models".*')
    before, until = len(asked.findall(served.heard.getvalue())), time.monotonic() + 60
    assert httpx.get(address, headers={"X-Forwarded-For": forged}, timeout=60).status_code == 200
    while len(lines := asked.findall(served.heard.getvalue())) == before:
        assert time.monotonic() < until  # a line is written after its answer has been sent
        time.sleep(0.02)
    last = json.loads(lines[-1])
    assert (last["event"], last["path"]) == ("request", "/v1/models")


def test_nobody_waits_for_a_slow_client(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends half a body, one that reads nothing, one that sends nothing: the others are answered meanwhile."""
    monkeypatch.setattr(gate, "_PATIENCE", 3.0)  # enough for those who send all of it
    with served.listen() as address:
        place = (urlsplit(address).hostname, urlsplit(address).port)
        head = f"POST {TRANSLATE} HTTP/1.1\r\nHost: 127.0.0.1:{place[1]}\r\nContent-Type: application/json\r\n"
        with (
            closing(socket.create_connection(place)) as half,
            closing(socket.create_connection(place)) as silent,
            closing(socket.create_connection(place)) as lying,
        ):
            half.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            silent.sendall(b"POST /")
            lying.sendall(f'{head}Content-Length: 13\r\n\r\n{{"texts": "a"}}'.encode())  # one byte more
            for _ in range(3):
                assert httpx.post(f"{address}{TRANSLATE}", json={"texts": "a"}, timeout=60).status_code == 200
            assert b"408" in half.recv(1000)
            assert b"HTTP/1.1 4" in lying.recv(1000)


def test_a_client_who_leaves_is_not_computed_for(served: Served) -> None:
    with served.listen() as address:
        place = (urlsplit(address).hostname, urlsplit(address).port)
        body = json.dumps({"texts": ["the cat"] * 50, "max_length": 2000, "model": "language-model"})
        head = f"POST {GENERATE} HTTP/1.1\r\nHost: 127.0.0.1:{place[1]}\r\nContent-Type: application/json\r\n"
        for _ in range(20):
            with closing(socket.create_connection(place)) as leaving:
                leaving.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
                time.sleep(0.01)
        assert httpx.post(f"{address}{TRANSLATE}", json={"texts": "a"}, timeout=60).status_code == 200
        until = time.monotonic() + 60
        while served.service.batcher.backlog:
            assert time.monotonic() < until
            time.sleep(0.02)
