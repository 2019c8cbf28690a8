"""What the server answers: the trace that Python makes, number by number, and a sentence for what it cannot do."""

import numpy as np
import pytest
from fastapi.testclient import TestClient
from safetensors.numpy import load

from seqloom.serve.traces import Request, Traces
from unit.serve.conftest import Open

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
