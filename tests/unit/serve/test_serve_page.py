"""The page of a server, and the explorer behind it: who may read what."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqloom.serve.keys import Keys
from seqloom.serve.launch import list_explored
from unit.serve.served import Served, make_folders

KEY = {"Authorization": "Bearer a-key"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    folders, keys = make_folders(folder, ("language-model",)), folder / "keys.txt"
    keys.write_text(f"{hashlib.sha256(b'a-key').hexdigest()}  website\n")
    with Served(folders, keys=Keys(keys), explore=True) as made:
        yield made


def ask(served: Served, path: str, method: str = "GET", **more: Any) -> Any:
    async def send() -> Any:
        async with served.open_client() as client:
            return await client.request(method, path, **more)

    return asyncio.run(send())


@pytest.mark.parametrize(
    "path", ["/", "/page.js", "/page.css", "/explore/language-model/", "/static/app.js", "/seqloom/v1/openapi.json"]
)
def test_pages_need_no_key_and_ask_nobody_else(served: Served, path: str) -> None:
    answer = ask(served, path)
    assert answer.status_code == 200
    assert "https://" not in answer.text.replace("https://www.w3.org", "")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/seqloom/v1/models", "/explore/language-model/seqloom/v1/model", "/metrics"])
def test_models_need_a_key(served: Served, path: str) -> None:
    assert ask(served, path).status_code == 401
    assert ask(served, path, headers=KEY).status_code == 200


def test_a_model_can_be_looked_into(served: Served) -> None:
    [model] = ask(served, "/seqloom/v1/models", headers=KEY).json()["models"]
    assert model["explore"] == "/explore/language-model/"
    prefix = "/explore/language-model/seqloom/v1"
    assert ask(served, f"{prefix}/model", headers=KEY).json()["task"] == "language-model"
    trace = ask(served, f"{prefix}/trace", "POST", headers=KEY, json={"text": "the cat"})
    assert trace.status_code == 200, trace.text
    assert ask(served, f"{prefix}/trace", "POST", json={"text": "the cat"}).status_code == 401


def test_a_model_that_is_looked_into_is_loaded_once(served: Served) -> None:
    [model] = served.service.models
    subject = list_explored(served.service.models)[model.name]
    assert subject.model is not None
    assert subject.model._predictor is model.predictor
    assert model.predictor.private  # nobody can have changed it, so answers need no check


def test_there_is_no_explorer_unless_it_is_asked_for(tmp_path: Path) -> None:
    with Served(make_folders(tmp_path, ("language-model",))) as served:
        assert ask(served, "/explore/language-model/").status_code == 404
        assert ask(served, "/static/app.js").status_code == 404
        assert ask(served, "/seqloom/v1/models").json()["models"][0]["explore"] is None
