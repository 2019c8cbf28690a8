"""The history of a run over the wire: what Python reads from its folder, and the runs beside it by name only."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from listening import Listening
from seqloom.runs.history import read_history
from seqloom.serve.subject import Subject
from seqloom.training.job import train
from small_corpora import corpora, write_config
from unit.serve.conftest import TOKEN, Open, make_client

__all__ = ["corpora"]
API = "/seqloom/v1"


@pytest.fixture(scope="module")
def folder(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs: one is finished, one was stopped before it saved anything."""
    folder = tmp_path_factory.mktemp("runs")
    path = write_config(folder, corpora, "tagging", "recurrent", "steps = 8\nvalidate_every = 4\nsnapshots = 3")
    train(path, out=folder / "runs" / "done", monitor=Listening())
    train(path, out=folder / "runs" / "other", monitor=Listening(), should_stop=lambda: True)
    (folder / "runs" / "no-run").mkdir()
    (folder / "secret").mkdir()
    (folder / "secret" / "config.toml").write_text(path.read_text())
    (folder / "secret" / "log.jsonl").write_text("")
    return folder / "runs"


@pytest.fixture
def client(folder: Path) -> TestClient:
    return make_client(Subject(folder / "done"), Authorization=f"Bearer {TOKEN}")


def test_the_history_is_that_of_python_and_is_sent_once(client: TestClient, folder: Path) -> None:
    found = client.get(f"{API}/run").json()
    assert found == read_history(folder / "done")
    assert client.get(f"{API}/run", params={"since": found["version"]}).json() == {
        "version": found["version"],
        "same": True,
    }
    with (folder / "done" / "log.jsonl").open("a") as file:
        file.write('{"step": 9, "loss": 1.0, "norm": 1.0, "rate": 0.0, "count": 1}\n')
    after = client.get(f"{API}/run", params={"since": found["version"]}).json()
    assert after["train"]["steps"] == [*found["train"]["steps"], 9]


def test_runs_beside_it_are_opened_by_name_and_nothing_else_is(client: TestClient, folder: Path) -> None:
    assert client.get(f"{API}/runs").json() == {"runs": [{"name": "other", "task": "tagging"}]}
    other = client.get(f"{API}/run", params={"name": "other"}).json()
    assert (other["name"], other["state"]) == ("other", "resumable")
    for name in ("../secret", "done/../../secret", str(folder.parent / "secret"), "no-run", "none"):
        answer = client.get(f"{API}/run", params={"name": name})
        assert answer.status_code == 400
        assert "no such run" in answer.json()["error"]


def test_without_the_token_nothing_is_told(folder: Path) -> None:
    client = make_client(Subject(folder / "done"))
    assert client.get(f"{API}/run").status_code == 401
    assert client.get(f"{API}/runs").status_code == 401


def test_a_model_that_was_not_trained_here_has_no_history(open_client: Open) -> None:
    answer = open_client("translation").get(f"{API}/run")
    assert answer.status_code == 400
    assert "not trained here" in answer.json()["error"]


def test_every_moment_of_the_history_can_be_traced(client: TestClient) -> None:
    moments = client.get(f"{API}/run").json()["moments"]
    assert {moment["kind"] for moment in moments} == {"snapshot", "checkpoint"}
    answers = set()
    for moment in moments:
        body = {"text": "the cat sees the dog .", "checkpoint": moment["name"]}
        answer = client.post(f"{API}/trace", json=body)
        assert answer.status_code == 200, answer.text
        answers.add(answer.json()["predictions"][0]["probability"])
    assert len(answers) == len({moment["step"] for moment in moments})
