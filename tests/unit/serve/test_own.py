"""Our own dialect: every verb answers as the model does in Python, alone and among others."""

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom
from seqloom.predict.results import as_plain
from small_corpora import sentences
from unit.serve.served import Served, make_folders

pytestmark = pytest.mark.usefixtures("as_users_run")  # whole models: shapes are checked elsewhere

TEXTS = [*sentences(6, seed=3), "", "the cat . a dog finds the mouse ."]
SCORE = 1e-5


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def served(folders: dict[str, Path]) -> Iterator[Served]:
    with Served(folders) as made:
        yield made


def close(ours: Any, theirs: Any) -> None:
    """The same texts and shapes; numbers to 1e-5."""
    if isinstance(theirs, dict):
        assert {*ours} - {"line"} == {*theirs}
        for name, value in theirs.items():
            close(ours[name], value)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            close(one, other)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, abs=SCORE)
    else:
        assert ours == theirs


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("translation", "translate", {}),
    ("translation", "translate", {"beam": 3, "nbest": 2, "align": False}),
    ("translation", "translate", {"sample": True, "seed": 4, "top_p": 0.9, "max_length": 12}),
    ("translation", "translate", {"beam": 2, "coverage_penalty": 0.2}),
    ("translation", "translate", {"constraints": ["dog"], "max_length": 20}),
    ("language-model", "generate", {"max_length": 10}),
    ("language-model", "generate", {"max_length": 9, "min_length": 5, "beam": 2}),
    ("language-model", "generate", {"sample": True, "nbest": 3, "seed": 2, "max_length": 8}),
    ("language-model", "score", {}),
    ("classification", "classify", {}),
    ("tagging", "tag", {}),
    ("masked-language-model", "fill", {"top": 2}),
    ("masked-language-model", "score", {}),
    ("classification", "embed", {"pooling": "max"}),
    ("translation", "embed", {"level": "token"}),
]


load = cache(seqloom.load)


def expect(folder: Path, verb: str, texts: list[str], options: dict[str, Any]) -> list[Any]:
    model = load(folder)
    found = getattr(model, verb)(texts, **options)
    if verb == "embed" and options.get("level") != "token":
        return [{"pieces": 1, "vector": vector.tolist()} for vector in found]
    return [as_plain(one) for one in found]


@pytest.mark.parametrize(("task", "verb", "options"), CASES)
def test_every_verb_answers_as_in_python(
    served: Served, folders: dict[str, Path], task: str, verb: str, options: dict[str, Any]
) -> None:
    texts = [f"{text} [MASK]" for text in TEXTS] if verb == "fill" else TEXTS

    async def ask() -> Any:
        async with served.open_client() as client:
            body = {"model": task, "texts": texts, **options}
            return (await client.post(f"/seqloom/v1/{verb}", json=body)).json()

    answer = asyncio.run(ask())
    assert answer.get("model") == task, answer
    assert [one["line"] for one in answer["results"]] == list(range(1, len(texts) + 1))
    for one in answer["results"]:
        del one["line"]
    close(answer["results"], expect(folders[task], verb, texts, options))


def test_answers_do_not_depend_on_who_else_asks(served: Served, folders: dict[str, Path]) -> None:
    """Requests of all kinds at once, from several clients, each of which must have the answer that it has alone."""
    asked = [(case, [text]) for case in CASES for text in TEXTS[:2]] + [(case, TEXTS) for case in CASES]

    async def ask_all() -> list[Any]:
        async with served.open_client(timeout=120) as client:

            async def ask(number: int, case: tuple[str, str, dict[str, Any]], texts: list[str]) -> Any:
                await asyncio.sleep(number % 7 / 200)
                task, verb, options = case
                answer = await client.post(f"/seqloom/v1/{verb}", json={"model": task, "texts": texts, **options})
                assert answer.status_code == 200, answer.text
                return answer.json()["results"]

            return await asyncio.gather(*(ask(number, *one) for number, one in enumerate(asked)))

    answers = asyncio.run(ask_all())
    for (case, texts), answer in zip(asked, answers, strict=True):
        close(answer, expect_once(folders, case, texts))
    assert served.service.batcher.backlog == 0


_EXPECTED: dict[str, list[Any]] = {}


def expect_once(folders: dict[str, Path], case: tuple[str, str, dict[str, Any]], texts: list[str]) -> list[Any]:
    task, verb, options = case
    key = json.dumps([case, texts])
    if key not in _EXPECTED:
        _EXPECTED[key] = expect(folders[task], verb, texts, options)
    return _EXPECTED[key]


def test_a_text_is_streamed_as_it_grows(served: Served, folders: dict[str, Path]) -> None:
    async def ask() -> list[dict[str, Any]]:
        body = {"texts": "the cat", "max_length": 12, "prefix": " sees", "stream": True}
        async with served.open_client() as client, client.stream("POST", "/seqloom/v1/generate", json=body) as answer:
            return [json.loads(line) async for line in answer.aiter_lines()]

    *parts, last = asyncio.run(ask())
    whole = load(folders["language-model"]).generate("the cat", max_length=12, prefix=" sees")
    assert len(parts) > 3
    assert "".join(part["text"] for part in parts) == whole.text == last["results"][0]["text"]


def test_pairs_words_and_shots(served: Served, folders: dict[str, Path]) -> None:
    async def ask(verb: str, **body: Any) -> Any:
        async with served.open_client() as client:
            return (await client.post(f"/seqloom/v1/{verb}", json=body)).json()

    words = [["the", "cat"], ["a", "dog", "."]]
    tags = asyncio.run(ask("tag", texts=words))["results"]
    close(tags, [as_plain(one) for one in load(folders["tagging"]).tag(words)])
    shots = [("a cat", "short"), ("the dog sees the dog .", "long")]
    shown = asyncio.run(ask("classify", model="language-model", texts=["a dog"], shots=shots))["results"]
    close(shown, [as_plain(one) for one in load(folders["language-model"]).classify(["a dog"], shots=shots)])
    scored = asyncio.run(ask("score", model="translation", texts="the cat", targets="a dog"))["results"]
    close(scored, [as_plain(load(folders["translation"]).score("the cat", "a dog"))])


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("translate", {"texts": "a", "model": "nothing"}, 404, "there is no model 'nothing' here; there are: "),
        ("translate", {"texts": "a", "model": "tagging"}, 400, "it can tag and embed, not translate"),
        ("embed", {"texts": "a"}, 400, "several models can embed; name one of them"),
        ("translate", {"texts": "a", "beams": 3}, 422, "beams: extra inputs are not permitted"),
        ("translate", {"texts": 3}, 422, "texts"),
        ("translate", {"texts": "a", "beam": 0}, 400, "beam: must be at least 1, not 0"),
        ("translate", {"texts": "a", "beam": 1000}, 400, "beam: 1000 is more than the 16 that this server allows"),
        ("translate", {"texts": "a\0b"}, 400, "text 1: U+0000 at character 2"),
        ("score", {"model": "translation", "texts": "a"}, 400, "give it both"),
        ("generate", {"texts": ["a", "b"], "stream": True}, 400, "one answer to one text can be streamed"),
        ("nothing", {}, 404, "there is nothing at this address"),
    ],
)
def test_what_is_wrong_is_said(served: Served, path: str, body: dict[str, Any], status: int, said: str) -> None:
    async def ask() -> tuple[int, str]:
        async with served.open_client() as client:
            answer = await client.post(f"/seqloom/v1/{path}", json=body)
            return answer.status_code, answer.json()["error"]

    code, sentence = asyncio.run(ask())
    assert code == status, sentence
    assert said in sentence


def test_models_health_and_numbers(served: Served) -> None:
    async def ask() -> list[Any]:
        async with served.open_client() as client:
            paths = ("/seqloom/v1/models", "/health", "/health/live", "/health/ready", "/seqloom/v1/openapi.json")
            return [*[(await client.get(path)).json() for path in paths], (await client.get("/metrics")).text]

    models, health, live, ready, description, numbers = asyncio.run(ask())
    assert [model["name"] for model in models["models"]] == [*served.service.models._models]
    assert models["models"][0]["languages"] == ["und", "und"]
    found = {"status": "ready", "workers": 1, "threads": torch.get_num_threads()}
    assert (health, live, ready) == (found, {"status": "live"}, found)
    assert "/seqloom/v1/translate" in description["paths"]
    assert 'seqloom_requests_total{path="/health",status="200"}' in numbers
    for line in numbers.splitlines():
        assert line.startswith("#") or float(line.rpartition(" ")[2]) >= 0


def test_logs_have_no_text(served: Served) -> None:
    async def ask() -> None:
        async with served.open_client() as client:
            await client.post(
                "/seqloom/v1/translate?q=secretword", json={"texts": "secretword cat", "beam": "secretword"}
            )
            await client.post("/seqloom/v1/translate?q=secretword", json={"texts": "secretword cat"})

    asyncio.run(ask())
    lines = [json.loads(line) for line in served.heard.getvalue().splitlines()]
    assert lines[-1]["verb"] == "translate"
    assert lines[-1]["characters"] == len("secretword cat")
    assert "secretword" not in served.heard.getvalue()


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_precision_answers_as_the_model_of_that_precision(folders: dict[str, Path], precision: Any) -> None:
    """All texts at once, each as a request of its own; what is rounded does not depend on the neighbours."""
    model = seqloom.load(folders["translation"], precision=precision)
    expected = [as_plain(one) for one in model.translate(TEXTS, beam=2, align=False)]

    async def ask_all(served: Served) -> list[Any]:
        async with served.open_client() as client:
            bodies = [{"texts": [text], "beam": 2, "align": False} for text in TEXTS]
            return await asyncio.gather(*(client.post("/seqloom/v1/translate", json=body) for body in bodies))

    with Served({"mt": folders["translation"]}, precision=precision) as served:
        answers = asyncio.run(ask_all(served))
    for answer, wanted in zip(answers, expected, strict=True):
        close(answer.json()["results"][0], wanted)
