"""A model of random weights behind the server, asked as a browser asks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

import seqloom
from seqloom.config.tokenizer import Words
from seqloom.serve.explore import make_app
from seqloom.serve.subject import Subject
from seqloom.tasks.configuration import resolve
from seqloom.text import Tokenizer
from small_corpora import corpora, sentences
from small_runs import runs

__all__ = ["corpora", "make_client", "make_run", "open_client", "runs", "subjects"]

PORT, TOKEN = 8123, "the-token"
STACK = {"num_layers": 2, "model_dim": 16, "num_heads": 2}
MODELS: dict[str, dict[str, Any]] = {
    "translation": {"encoder": STACK, "decoder": STACK},
    "language-model": {"decoder": STACK},
    "classification": {"encoder": {**STACK, "family": "transformer"}},
    "tagging": {"encoder": {**STACK, "family": "transformer"}},
    "masked-language-model": {"encoder": STACK},
}
Open = Callable[[str], TestClient]


def make_run(folder: Path, task: str, family: str = "transformer") -> Path:
    """A run folder with random weights."""
    stack: dict[str, Any] = {"family": family, "num_layers": 2, "model_dim": 16}
    tokenizer = Tokenizer.train([*sentences(50, seed=1), "<script>alert(1)</script>"], Words(min_frequency=1))
    config = {
        "task": task,
        "model": MODELS[task] if family == "transformer" else dict.fromkeys(MODELS[task], stack),
        **({} if "language-model" in task else {"batch": {"max_length": 32}}),
    }
    labels = {"classification": ("bad", "good"), "tagging": ("O", "B-X", "I-X")}.get(task, ())
    torch.manual_seed(1)
    files = {"source": "s", "target": "t"} if task == "translation" else {"files": "f"}
    files |= {"format": "conll"} if task == "tagging" else {}
    whole = {**config, "tokenizer": {"kind": "file", "path": "tokenizer.json"}, "data": {"train": files}}
    weights = resolve(whole).build(tokenizer, labels).state_dict()
    return seqloom.assemble(config, tokenizer, weights, labels=labels).save(folder)


@pytest.fixture(scope="session")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    """What is explored, by task."""
    made: dict[str, Subject] = {}

    def get(task: str) -> Subject:
        if task not in made:
            made[task] = Subject(make_run(tmp_path_factory.mktemp("run") / task, task))
        return made[task]

    return get


@pytest.fixture
def open_client(subjects: Callable[[str], Subject]) -> Open:
    """A client with the token and the right address."""

    def get(task: str) -> TestClient:
        return make_client(subjects(task), Authorization=f"Bearer {TOKEN}")

    return get


def make_client(subject: Subject, **headers: str) -> TestClient:
    """A client of a server."""
    app = make_app(subject, port=PORT, token=TOKEN)
    return TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=headers, raise_server_exceptions=False)
