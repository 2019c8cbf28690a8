"""What strangers send: each is refused with a sentence in the form of its dialect, or harmless; never a 500."""

import asyncio
import gzip
import hashlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from seqloom.serve.keys import Keys
from unit.serve.served import Served, make_folders

pytestmark = pytest.mark.usefixtures("as_users_run")  # whole models: shapes are checked elsewhere

TRANSLATE, GENERATE = "/seqloom/v1/translate", "/seqloom/v1/generate"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("served"), ("translation", "language-model"))


@pytest.fixture(scope="module")
def served(folders: dict[str, Path]) -> Iterator[Served]:
    with Served(folders, body=100_000, characters=5_000, items=50) as made:
        yield made


def post(path: str, status: int | tuple[int, ...], **request: Any) -> Any:
    statuses = status if isinstance(status, tuple) else (status,)
    return ("POST", path, request, statuses)


def get(path: str, status: int, **request: Any) -> Any:
    return ("GET", path, request, (status,))


async def drip(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 1000):
        yield b"a" * 1000


HOSTILE: dict[str, Any] = {
    "a giant body that says so": post(TRANSLATE, 413, content=b"a" * 200_000, headers=JSON),
    "a giant body in pieces, without its length": post(TRANSLATE, 413, content=drip(200_000), headers=JSON),
    "a length that is no number": post(TRANSLATE, 413, content=b"{}", headers={**JSON, "Content-Length": "many"}),
    "a length below zero": post(TRANSLATE, 413, content=b"{}", headers={**JSON, "Content-Length": "-1"}),
    "a length of other digits": post(
        TRANSLATE, 413, content=b"{}", headers=[(b"Content-Length", "²".encode("latin-1"))]
    ),
    "JSON of 50,000 levels": post(TRANSLATE, (400, 422), content=b'{"texts":' + b"[" * 45_000, headers=JSON),
    "closed JSON of 20,000 levels": post(
        TRANSLATE, (400, 422), content=b'{"texts":' + b"[" * 20_000 + b"]" * 20_000 + b"}", headers=JSON
    ),
    "half of a JSON object": post(TRANSLATE, 422, content=b'{"texts": "a"', headers=JSON),
    "a JSON list": post(TRANSLATE, 422, json=["a"]),
    "a body that is not UTF-8": post(TRANSLATE, (400, 422), content=b'{"texts": "\xff\xfe"}', headers=JSON),
    "half of a character": post(TRANSLATE, 400, content=b'{"texts": "a\\ud800b"}', headers=JSON),
    "half of a character in an option": post(
        TRANSLATE, 400, content=b'{"texts": "a", "prefix": "\\udfff"}', headers=JSON
    ),
    "U+0000": post(TRANSLATE, 400, json={"texts": ["a", "b\0"]}),
    "NaN as a number": post(TRANSLATE, 422, content=b'{"texts": "a", "length_penalty": NaN}', headers=JSON),
    "infinity as a number": post(TRANSLATE, 422, content=b'{"texts": "a", "length_penalty": 1e999}', headers=JSON),
    "n = 10⁹": post("/v1/completions", 400, json={"model": "language-model", "prompt": "a", "n": 10**9}),
    "n = 10⁹, most probable": post(
        "/v1/completions", 400, json={"model": "language-model", "prompt": "a", "n": 10**9, "temperature": 0}
    ),
    "n below zero": post("/v1/completions", 422, json={"model": "language-model", "prompt": "a", "n": -1}),
    "10⁹ tokens": post(GENERATE, 400, json={"texts": "a", "max_length": 10**9}),
    "10⁹ tokens at least": post(GENERATE, 400, json={"texts": "a", "min_length": 10**9}),
    "10⁹ beams": post(TRANSLATE, 400, json={"texts": "a", "beam": 10**9}),
    "a number of 5,000 digits": post(
        TRANSLATE, (400, 422), content=b'{"texts":"a","beam":' + b"9" * 5000 + b"}", headers=JSON
    ),
    "a seed of 300 digits": post(
        GENERATE,
        (200, 400, 422),
        content=b'{"texts":"a","sample":true,"max_length":2,"seed":' + b"9" * 300 + b"}",
        headers=JSON,
    ),
    "too many texts": post(TRANSLATE, 413, json={"texts": ["a"] * 51}),
    "too many characters": post(TRANSLATE, 413, json={"texts": "a" * 5_001}),
    "a thousand constraints": post(TRANSLATE, 413, json={"texts": "a", "constraints": ["a"] * 1000}),
    "an empty list": post(TRANSLATE, 200, json={"texts": []}),
    "an unknown option": post(TRANSLATE, 422, json={"texts": "a", "__class__": "x"}),
    "a name of a model that is a path": post(TRANSLATE, 404, json={"texts": "a", "model": "../../etc/passwd"}),
    "a name of a model in the address": post("/models/..%2f..%2fetc", 404, json={"inputs": "a"}),
    "traversal": get("/seqloom/v1/../../../etc/passwd", 404),
    "traversal, encoded": get("/%2e%2e/%2e%2e/etc/passwd", 404),
    "a page of the framework": get("/docs", 404),
    "another page of the framework": get("/redoc", 404),
    "a gzip bomb": post(
        TRANSLATE, 415, content=b"\x1f\x8b" + b"0" * 1000, headers={**JSON, "Content-Encoding": "gzip"}
    ),
    "a form where JSON is wanted": post(TRANSLATE, 422, data={"texts": "a"}),
    "another content type": post("/translate", 415, content=b"<q>a</q>", headers={"Content-Type": "text/xml"}),
    "a form that is not UTF-8": post(
        "/translate",
        400,
        content=b"q=%ff%fe&source=a&target=b",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    ),
    "10,000 fields": post(
        "/translate", 400, content=b"a=1&" * 10_000, headers={"Content-Type": "application/x-www-form-urlencoded"}
    ),
    "a name that resolves here": get("/health", 421, headers={"Host": "evil.example:8000"}),
    "a name that begins as ours": get("/health", 421, headers={"Host": "127.0.0.1.evil.example:8000"}),
    "no name": get("/health", 421, headers={"Host": ""}),
    "another page": post(TRANSLATE, 403, json={"texts": "a"}, headers={"Origin": "https://evil.example"}),
    "a page of a file": post(TRANSLATE, 403, json={"texts": "a"}, headers={"Origin": "null"}),
    "another site": post(TRANSLATE, 403, json={"texts": "a"}, headers={"Sec-Fetch-Site": "cross-site"}),
    "two names": get("/health", 400, headers=[("Host", "127.0.0.1:8000"), ("Host", "evil.example")]),
    "two keys": get("/v1/models", 400, headers=[("Authorization", "Bearer a"), ("Authorization", "Bearer b")]),
    "another method": ("DELETE", TRANSLATE, {}, (405,)),
    "a preflight": ("OPTIONS", TRANSLATE, {}, (405,)),
    "script in a text": post(TRANSLATE, 200, json={"texts": "<script>alert(1)</script>"}),
    "script in the name of a model": post(TRANSLATE, 404, json={"texts": "a", "model": "<script>alert(1)</script>"}),
    "a line break in the name of a model": post(TRANSLATE, 404, json={"texts": "a", "model": "a\r\nSet-Cookie: b=c"}),
    "lines of a log in the address": get("/a%0d%0a%7b%22event%22:%22fault%22%7d", 404),
    "ids in place of a text": post("/v1/embeddings", 422, json={"model": "translation", "input": [1, 2]}),
    "a language of 10,000 letters": post("/translate", 200, json={"q": "a", "source": "a" * 10_000, "target": "b"}),
    "markup to translate": post(
        "/translate", 400, json={"q": "<b>a</b>", "source": "a", "target": "b", "format": "html"}
    ),
    "a gzip bomb that is one": post(
        TRANSLATE, 415, content=gzip.compress(b"0" * 10_000_000), headers={**JSON, "Content-Encoding": "gzip"}
    ),
    "compressed twice": post(TRANSLATE, 415, content=b"a", headers={**JSON, "Content-Encoding": "deflate, gzip"}),
    "compressed, without saying so": post(
        TRANSLATE, (400, 422), content=gzip.compress(b'{"texts": "a"}'), headers=JSON
    ),
    "a form of a length below zero": post("/translate", 413, data={"q": "a"}, headers={"Content-Length": "-5"}),
    "deep JSON, of OpenAI": post(
        "/v1/completions", (400, 422), content=b'{"model":"language-model","prompt":' + b"[" * 45_000, headers=JSON
    ),
    "deep JSON, of Ollama": post(
        "/api/generate", (400, 422), content=b'{"model":"language-model","options":' + b'{"a":' * 9_000, headers=JSON
    ),
    "deep JSON, of Hugging Face": post(
        "/models/language-model", (400, 422), content=b'{"inputs":"a","parameters":' + b"[" * 45_000, headers=JSON
    ),
    "deep JSON where a key is looked for": post(
        "/translate", 400, content=b'{"api_key":' + b"[" * 45_000, headers=JSON
    ),
    "7,000 names in an object": post(
        TRANSLATE, 422, content=json.dumps({f"a{n}": 1 for n in range(7_000)}).encode(), headers=JSON
    ),
    "an object in place of texts": post(TRANSLATE, 422, json={"texts": {"a": "b"}}),
    "a number in place of texts": post(TRANSLATE, 422, json={"texts": [1, None, True]}),
    "10⁹ tokens, of Ollama": post(
        "/api/generate", 400, json={"model": "language-model", "prompt": "a", "options": {"num_predict": 10**9}}
    ),
    "10⁹ tokens, of Hugging Face": post(
        "/models/language-model", 400, json={"inputs": "a", "parameters": {"max_new_tokens": 10**9}}
    ),
    "10⁹ answers, of LibreTranslate": post(
        "/translate", 400, json={"q": "a", "source": "a", "target": "b", "alternatives": 10**9}
    ),
    "10⁹ log-probabilities": post(
        "/v1/completions", (400, 422), json={"model": "language-model", "prompt": "a", "logprobs": 10**9}
    ),
    "a temperature of 10³⁰⁸": post(
        "/v1/completions", (200, 400, 422), json={"model": "language-model", "prompt": "a", "temperature": 1e308}
    ),
    "a temperature below zero": post(
        "/v1/completions", (400, 422), json={"model": "language-model", "prompt": "a", "temperature": -1}
    ),
    "10,000 stop texts": post(
        "/v1/completions",
        (200, 400, 413, 422),
        json={"model": "language-model", "prompt": "a", "max_tokens": 2, "stop": ["a"] * 10_000},
    ),
    "traversal in the name of a model, of Hugging Face": post("/models/../../../etc/passwd", 404, json={"inputs": "a"}),
    "traversal, encoded twice": get("/%252e%252e/%252e%252e/etc/passwd", 404),
    "a file of the explorer, which is off": get("/static/../../../../etc/passwd", 404),
    "U+0000 in the address": get("/a%00b", 404),
    "our name with a user before it": get("/health", 421, headers={"Host": "evil.example@127.0.0.1"}),
    "our name with a dot after it": get("/health", 421, headers={"Host": "localhost.evil.example"}),
    "our name elsewhere": get("/health", 421, headers={"Host": "evil.example", "X-Forwarded-Host": "localhost"}),
    "the page at another port": post(TRANSLATE, 403, json={"texts": "a"}, headers={"Origin": "http://127.0.0.1:9"}),
    "a page whose name begins as ours": post(
        TRANSLATE, 403, json={"texts": "a"}, headers={"Origin": "http://127.0.0.1:8000.evil.example"}
    ),
    "a frame of the same site": post(TRANSLATE, 403, json={"texts": "a"}, headers={"Sec-Fetch-Site": "same-site"}),
    "a form that another page sends": post(
        "/translate", 403, data={"q": "a", "source": "a", "target": "b"}, headers={"Origin": "https://evil.example"}
    ),
    "another method in a header": post(
        TRANSLATE, 200, json={"texts": "a"}, headers={"X-HTTP-Method-Override": "DELETE"}
    ),
    "script in the tokens to find": post(
        "/tokenize", 200, json={"model": "translation", "inputs": "<script>alert(1)</script>"}
    ),
    "script in an option": post(TRANSLATE, 422, json={"texts": "a", "<script>alert(1)</script>": 1}),
    "script in a language": post(
        "/translate", 200, json={"q": "a", "source": "<script>alert(1)</script>", "target": "b"}
    ),
    "a key of 50,000 letters": get("/v1/models", 200, headers={"Authorization": "Bearer " + "a" * 50_000}),
    "detecting a language": post("/detect", 400, json={"q": "a"}),
    "a chat": post("/api/chat", 400, json={"model": "language-model", "messages": []}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_or_harmless(served: Served, name: str) -> None:
    method, path, request, statuses = HOSTILE[name]

    async def ask() -> httpx.Response:
        async with served.open_client(timeout=60) as client:
            return await client.request(method, path, **request)

    answer = asyncio.run(ask())
    assert answer.status_code in statuses, answer.text
    assert answer.headers["content-type"].startswith("application/json")  # never HTML
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in answer.headers
    if answer.status_code >= 400:
        said = answer.json()
        sentence = said.get("error", said.get("message"))
        assert isinstance(sentence["message"] if isinstance(sentence, dict) else sentence, str)
    assert served.service.batcher.backlog == 0


def test_every_line_of_the_log_is_one_object(served: Served) -> None:
    for line in served.heard.getvalue().splitlines():
        assert json.loads(line)["event"] == "request", line


def test_a_stream_of_many_texts_leaves_the_loop_to_others(served: Served) -> None:
    body = {"model": "language-model", "prompt": ["the cat"] * 10, "n": 4, "max_tokens": 30, "stream": True}

    async def ask() -> int:
        async with served.open_client(timeout=120) as client:
            streaming, answered = asyncio.create_task(client.post("/v1/completions", json=body)), 0
            while not streaming.done():
                assert (await client.get("/health")).status_code == 200
                answered += 1
            assert (await streaming).text.endswith("data: [DONE]\n\n")
            return answered

    assert asyncio.run(ask()) > 50  # of those that come one after the other


def test_a_key_is_not_told_by_the_time_it_takes(tmp_path: Path) -> None:
    """Every hash is compared in full: a key that is nearly right is treated as one that is not right at all."""
    file = tmp_path / "keys.txt"
    known = ["a" * 40, "b" * 40]
    file.write_text("".join(f"{hashlib.sha256(key.encode()).hexdigest()}  k{n}\n" for n, key in enumerate(known)))
    keys = Keys(file)
    assert [keys.find(key) for key in (*known, "a" * 39, "a" * 41, "", "b" * 39 + "c")] == ["k0", "k1", *[None] * 4]
    with pytest.MonkeyPatch.context() as patch:
        compared: list[bytes] = []
        patch.setattr("seqloom.serve.keys.hmac.compare_digest", lambda a, b: compared.append(b) or a == b)
        keys.find(known[0])
        assert len(compared) == 2  # also after the right one was found
    file.chmod(0o666)
    with pytest.raises(ValueError, match="anyone on this machine may write it"):
        keys.reload()
    file.chmod(0o644)
    for content, said in [("", "has no key"), ("hunter2 website\n", "a key itself does not belong here")]:
        file.write_text(content)
        with pytest.raises(ValueError, match=said):
            keys.reload()
    assert keys.find(known[0]) == "k0"


def test_a_full_queue_is_told_in_every_dialect(folders: dict[str, Path]) -> None:
    asked = {
        "/translate": {"q": ["a"] * 9, "source": "a", "target": "b"},
        "/v1/completions": {"model": "language-model", "prompt": ["a"] * 9, "stream": True},
        "/v2/translate": {"text": ["a"] * 9, "target_lang": "EN"},
        "/api/embed": {"model": "translation", "input": ["a"] * 9},
        "/embed": {"model": "translation", "inputs": ["a"] * 9},
        TRANSLATE: {"texts": ["a"] * 9},
    }

    async def ask(served: Served) -> list[httpx.Response]:
        async with served.open_client() as client:
            return [await client.post(path, json=body) for path, body in asked.items()]

    with Served(folders, queue=8) as served:
        for answer in asyncio.run(ask(served)):
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert "the queue has room for 8" in answer.text


def test_an_answer_that_takes_too_long_is_given_up(folders: dict[str, Path]) -> None:
    async def ask(served: Served) -> httpx.Response:
        async with served.open_client(timeout=60) as client:
            body = {"texts": ["the cat"] * 500, "max_length": 2000}
            return await client.post(GENERATE, json=body)

    with Served(folders, seconds=1) as served:
        answer = asyncio.run(ask(served))
        assert answer.status_code == 503
        assert "took longer than 1 s" in answer.json()["error"]
        assert served.service.batcher.backlog == 0


def test_tls_by_files(folders: dict[str, Path], tmp_path: Path) -> None:
    from seqloom.serve.launch import Place

    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    with Served(folders) as served, served.listen(certificate, key) as address:
        assert address.startswith("https://")
        assert httpx.get(f"{address}/health", verify=context, timeout=60).status_code == 200
    assert Place(certificate=certificate, private_key=key).address == "https://127.0.0.1"
