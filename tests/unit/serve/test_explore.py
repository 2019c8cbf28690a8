"""What the server answers: the trace that Python makes, number by number, and a sentence for what it cannot do."""

import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from safetensors.numpy import load

from seqloom.serve import explore
from seqloom.serve.subject import Subject
from seqloom.serve.traces import WAITING, BusyError, Request, Traces
from unit.serve.conftest import TOKEN, Open, make_client, make_run

API = "/seqloom/v1"


@pytest.fixture
def client(open_client: Open) -> TestClient:
    return open_client("translation")


def trace(client: TestClient, text: str = "the cat sees the dog .", **more: object) -> dict:
    answer = client.post(f"{API}/trace", json={"text": text, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_same_request_has_the_same_id(client: TestClient) -> None:
    one, two, other = trace(client), trace(client), trace(client, "a dog likes the cat .")
    assert one == two
    assert one["id"] != other["id"]
    assert client.get(f"{API}/trace/{one['id']}").json() == one


def test_maps_are_those_of_python(client: TestClient, subjects) -> None:  # type: ignore[no-untyped-def]
    found = trace(client)
    kept = subjects("translation").traces.get(found["id"]).trace
    for stack in found["stacks"]:
        sites = [site for layer in stack["layers"] for site in layer["sites"]]
        grid = load(client.get(f"{API}/trace/{found['id']}/grid", params={"stack": stack["name"]}).content)["grid"]
        assert len(grid) == len(sites)
        for site, thumbnail in zip(sites, grid, strict=True):
            exact = kept.mixing(site).numpy()
            given = client.get(f"{API}/trace/{found['id']}/mixing", params={"site": site})
            np.testing.assert_array_equal(load(given.content)["weights"], exact)
            np.testing.assert_array_equal(thumbnail, np.round(255 * np.sqrt(np.clip(exact, 0, 1))))


def test_rows_of_a_map_can_be_had_alone(client: TestClient) -> None:
    address = f"{API}/trace/{trace(client)['id']}/mixing"
    whole = load(client.get(address, params={"site": "encoder.0.head.1"}).content)["weights"]
    some = load(client.get(address, params={"site": "encoder.0.head.1", "rows": "1:3"}).content)["weights"]
    np.testing.assert_array_equal(some, whole[1:3])
    for rows in ("3:1", "0:999", "x", "-1:2"):
        assert client.get(address, params={"site": "encoder.0.head.1", "rows": rows}).status_code == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"text": ""}, "blank"),
        ({"text": "the cat . " * 200}, "the model reads 3"),
        ({}, "text: field required"),
        ({"text": 5}, "text: "),
        ({"text": "a", "path": "/etc/passwd"}, "path: extra inputs are not permitted"),
        ({"text": "a", "checkpoint": "../../etc"}, "no such checkpoint"),
        ({"text": "a", "changes": [{"kind": "explode"}]}, "A change has a kind"),
        ({"text": "a", "changes": [{"kind": "scale", "site": "encoder.0.head.0", "factor": "NaN"}]}, "factor"),
        ({"text": "a", "changes": [{}] * 99}, "changes: "),
        ({"text": "a", "search": {"beams": 3}}, "beams"),
    ],
)
def test_a_bad_request_gets_a_sentence(client: TestClient, body: dict, said: str) -> None:
    answer = client.post(f"{API}/trace", json=body)
    assert answer.status_code in (400, 422)
    assert said in answer.json()["error"]


def test_what_is_not_there_gets_a_sentence(client: TestClient) -> None:
    assert client.get(f"{API}/trace/unknown").json()["error"].startswith("This trace is no longer kept")
    found = trace(client)["id"]
    for what in ("mixing?site=encoder.9.head.0", "grid?stack=nothing", "grid?stack=encoder&size=9999"):
        answer = client.get(f"{API}/trace/{found}/{what}")
        assert answer.status_code in (400, 422)
        assert answer.json()["error"]


def test_a_script_in_a_text_stays_text(client: TestClient) -> None:
    found = client.post(f"{API}/trace", json={"text": "<script>alert(1)</script> the cat"})
    assert found.headers["content-type"] == "application/json"
    assert found.json()["sides"][0]["text"] == "<script>alert(1)</script> the cat"


def test_old_traces_are_dropped_when_memory_is_full(subjects) -> None:  # type: ignore[no-untyped-def]
    traces = Traces(subjects("language-model").model, kept_bytes=1)
    one, two = (traces.make(Request(text=text)) for text in ("the cat sees", "the dog likes"))
    assert traces.get(two.trace.id) is two
    with pytest.raises(Exception, match="no longer kept"):
        traces.get(one.trace.id)
    assert traces.make(Request(text="the cat sees")).trace.id == one.trace.id


def test_a_change_is_another_trace_that_can_be_asked_for_again(client: TestClient) -> None:
    before = trace(client)
    change = {"kind": "ablate", "site": "decoder.0.cross.1", "by": "zero"}
    after = client.post(f"{API}/trace/{before['id']}/change", json=change).json()
    assert after["id"] != before["id"]
    assert after["request"] == {**before["request"], "changes": [change]}
    assert trace(client, **{key: value for key, value in after["request"].items() if key != "text"}) == after
    compared = client.get(f"{API}/trace/{after['id']}/compare", params={"with": before["id"]}).json()
    assert {one["before"] for one in compared["predictions"]} <= {one["probability"] for one in before["predictions"]}


def test_reasons_are_those_of_python(client: TestClient, subjects) -> None:  # type: ignore[no-untyped-def]
    found = trace(client)
    kept = subjects("translation").traces.get(found["id"]).trace
    ask = f"{API}/trace/{found['id']}"
    attribution = client.get(f"{ask}/attribution", params={"position": 1}).json()
    assert attribution["sides"]["source"] == pytest.approx(kept.attribute(1).to_json()["sides"]["source"], abs=1e-6)
    assert client.get(f"{ask}/contributions?position=1").json()["logit"] == pytest.approx(kept.contributions(1).logit)
    layers = client.get(f"{ask}/lens", params={"position": 1, "top": 3}).json()["layers"]
    assert [layer["name"] for layer in layers] == [layer.name for layer in kept.lens(1)]
    assert all(len(layer["top"]) == 3 for layer in layers)
    steps = client.get(f"{ask}/arithmetic?site=encoder.0.head.0&row=1&column=0").json()["steps"]
    assert steps == json.loads(json.dumps(kept.arithmetic("encoder.0.head.0", 1, 0).to_json()))["steps"]
    assert client.get(f"{ask}/roles?stack=encoder").json() == kept.roles("encoder").to_json()
    assert client.get(f"{ask}/page").text.startswith("<!doctype html>")


def test_an_answer_has_a_limit(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "MAX_RESPONSE", 10)
    answer = client.get(f"{API}/trace/{trace(client)['id']}/mixing", params={"site": "encoder.0.head.0"})
    assert (answer.status_code, "ask for fewer rows" in answer.json()["error"]) == (400, True)


def test_too_many_requests_at_once_are_sent_away(subjects) -> None:  # type: ignore[no-untyped-def]
    traces = Traces(subjects("language-model").model)
    with ExitStack() as stack:
        for _ in range(WAITING):
            stack.callback(traces._places.release)
            traces._places.acquire()
        with pytest.raises(BusyError, match="busy with other requests"):
            traces.make(Request(text="the cat sees"))
    assert traces.make(Request(text="the cat sees")).trace.sites


def test_a_run_without_a_model_shows_its_training_only(tmp_path: Path) -> None:
    run = make_run(tmp_path / "lm", "language-model")
    for name in ("manifest.json", "model.safetensors"):
        (run / name).unlink()
    (run / "log.jsonl").write_text("")
    unfinished = make_client(Subject(run), Authorization=f"Bearer {TOKEN}")
    views = unfinished.get(f"{API}/model").json()["views"]
    assert views.pop("runs") is True
    assert set(views.values()) == {views["answer"]}
    assert "has saved nothing to use so far" in views["answer"]
    answer = unfinished.post(f"{API}/trace", json={"text": "the cat"})
    assert (answer.status_code, answer.json()["error"]) == (400, views["answer"])
