"""Only this machine's own page reaches the model; everyone else gets a sentence."""

from collections.abc import Callable, Iterator

import pytest
from fastapi.testclient import TestClient

from seqloom.page.bundle import static_files
from seqloom.serve.guard import MAX_BODY, draw_token
from seqloom.serve.subject import Subject
from unit.serve.conftest import PORT, TOKEN, Open, make_client

MODEL, TRACE = "/seqloom/v1/model", "/seqloom/v1/trace"


@pytest.fixture
def client(open_client: Open) -> TestClient:
    return open_client("language-model")


def test_the_page_and_the_model_are_there(client: TestClient) -> None:
    assert "<seq-app>" in client.get("/").text
    assert client.get(MODEL).json()["task"] == "language-model"
    assert client.get(MODEL, headers={"Host": f"localhost:{PORT}"}).status_code == 200


def test_a_token_is_needed(subjects: Callable[[str], Subject]) -> None:
    for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer "}):
        answer = make_client(subjects("language-model"), **given).get(MODEL)
        assert answer.status_code == 401
        assert "open the address that `seqloom explore` printed" in answer.json()["error"]
    assert make_client(subjects("language-model")).get("/").status_code == 200  # the page itself holds no secret


def test_tokens_cannot_be_guessed() -> None:
    drawn = {draw_token() for _ in range(100)}
    assert len(drawn) == 100
    assert min(map(len, drawn)) >= 43  # 256 bits


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", f"127.0.0.1:{PORT + 1}", f"127.0.0.1.nip.io:{PORT}", ""])
def test_a_name_that_resolves_to_this_machine_is_not_enough(client: TestClient, host: str) -> None:
    for path in ("/", MODEL):
        assert client.get(path, headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{PORT + 1}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get(MODEL, headers=headers).status_code == 403
    assert client.post(TRACE, json={"text": "the cat"}, headers=headers).status_code == 403


def test_the_own_page_is_served(client: TestClient) -> None:
    own = {"Origin": f"http://127.0.0.1:{PORT}", "Sec-Fetch-Site": "same-origin"}
    assert client.post(TRACE, json={"text": "the cat"}, headers=own).status_code == 200


def test_a_header_that_decides_may_be_there_once(client: TestClient) -> None:
    twice = [("Host", f"127.0.0.1:{PORT}"), ("Host", "evil.example")]
    assert client.get(MODEL, headers=twice).status_code == 400  # type: ignore[arg-type]


def test_other_methods_and_types_are_refused(client: TestClient) -> None:
    assert client.put(MODEL).status_code == 405
    assert client.options(TRACE).status_code == 405  # no preflight is ever answered
    form = client.post(TRACE, content='{"text": "a"}', headers={"Content-Type": "text/plain"})
    assert (form.status_code, form.json()["error"]) == (415, "The request must be JSON.")


def test_a_large_body_is_refused_whether_or_not_it_says_so(client: TestClient) -> None:
    large = b'{"text": "' + b"a" * MAX_BODY + b'"}'
    headers = {"Content-Type": "application/json"}

    def drip() -> Iterator[bytes]:
        yield from (large[start : start + 65536] for start in range(0, len(large), 65536))

    for content in (large, drip()):
        answer = client.post(TRACE, content=content, headers=headers)
        assert answer.status_code == 413
        assert "send a shorter text" in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    ["/static/../bundle.py", "/static/%2e%2e/bundle.py", "/static//etc/passwd", "/static/index.html", "/etc/passwd"],
)
def test_no_path_of_a_client_is_opened(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()) == (404, {"error": "There is nothing at this address"})


def test_only_the_files_of_the_page_are_served(client: TestClient) -> None:
    for name in static_files():
        expected = 404 if name.endswith(".html") else 200
        assert client.get(f"/static/{name}").status_code == expected


def test_every_answer_carries_the_policy(client: TestClient) -> None:
    for path in ("/", "/static/app.js", MODEL, "/nothing", f"{TRACE}/x"):
        headers = client.get(path).headers
        policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["connect-src"] == policy["style-src"] == "'self'"
        assert "unsafe" not in policy["script-src"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_there_are_no_pages_of_a_framework(client: TestClient) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert client.get(path).status_code == 404
