"""The route of the view Words."""

from pathlib import Path

import pytest

from seqloom.predict.contexts import find_contexts
from seqloom.predict.load import load
from seqloom.serve.sentences import find_sentences
from small_runs import Runs
from unit.serve.conftest import Open

WORDS = "/seqloom/v1/words"
TEXTS = ["the cat sees the dog .", "a cat likes the bird ."]


@pytest.mark.parametrize("task", ["translation", "language-model", "classification"])
def test_the_answer_is_that_of_python(open_client: Open, subjects, task: str) -> None:
    answer = open_client(task).post(WORDS, json={"word": "cat", "texts": TEXTS}).json()
    found = find_contexts(subjects(task).model._predictor, "cat", TEXTS)
    assert [one["name"] for one in answer["layers"]] == [layer.name for layer in found.layers]
    assert answer["layers"][-1]["points"] == found.layers[-1].points
    assert answer["occurrences"] == [{"text": 0, "start": 4, "end": 7}, {"text": 1, "start": 2, "end": 5}]
    assert answer["origin"] is None


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"word": "zebra", "texts": TEXTS}, "stands in none of the 2 sentences"),
        ({"word": "", "texts": TEXTS}, "give a word"),
        ({"word": "cat"}, "No validation sentences can be read"),
        ({"word": "cat", "texts": ["a"] * 101}, "texts"),
        ({"word": "cat", "path": "x"}, "path"),
    ],
)
def test_what_cannot_be_answered_is_said(open_client: Open, asked: dict[str, object], sentence: str) -> None:
    answer = open_client("translation").post(WORDS, json=asked)
    assert answer.status_code in (400, 422)
    assert sentence in answer.json()["error"]


def test_sentences_come_from_the_validation_data(runs: Runs) -> None:
    model = load(runs("tagging"))._predictor
    word, texts, origin = find_sentences(model, "")
    assert len(texts) > 1
    assert all(word in text.split() for text in texts)
    assert "validation data" in origin
    lines = (Path(model.config.data.valid[0].files[0])).read_text().split("\n\n")
    assert texts[0] in [" ".join(row.split()[0] for row in line.splitlines()) for line in lines]
    assert find_sentences(model, "Mouse")[1]
