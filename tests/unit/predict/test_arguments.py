"""A wrong argument is answered with a sentence that names it; none is taken for something else."""

from typing import Any

import pytest

import seqloom
from seqloom.errors import ConfigError, DataError
from small_runs import Runs


@pytest.fixture(scope="module")
def load(runs: Runs) -> Any:
    models: dict[str, seqloom.Model] = {}
    return lambda name: models.setdefault(name, seqloom.load(runs(name)))


@pytest.mark.parametrize(
    ("verb", "keywords", "said"),
    [
        ("evaluate", {"split": "tset"}, "split: expected 'valid' or 'test', not \"tset\""),
        ("evaluate", {"split": None}, "split: expected 'valid' or 'test'"),
        ("evaluate", {"samples": "5"}, 'samples: expected a whole number, not "5"'),
        ("evaluate", {"metrics": "chrf"}, "metrics: expected"),
        ("evaluate", {"against": "runs/other"}, "against: expected a Model"),
        ("evaluate", {"splits": "test"}, 'splits: is not a known option; did you mean "split"?'),
        ("embed", {"pooling": "avg"}, "pooling: expected 'mean'"),
        ("embed", {"level": "word"}, "level: expected 'text' or 'token'"),
        ("embed", {"layer": "mixx"}, "layer: expected"),
        ("translate", {"align": "no"}, "align: expected"),
    ],
)
def test_a_wrong_keyword_or_value(verb: str, keywords: dict[str, Any], said: str, load: Any) -> None:
    texts = [] if verb == "evaluate" else ["the cat"]
    with pytest.raises(ConfigError) as caught:
        getattr(load("translation"), verb)(*texts, **keywords)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("texts", [5, None, b"the cat"])
def test_texts_are_texts(texts: Any, load: Any) -> None:
    with pytest.raises(DataError, match="expected a text or a list of texts, not"):
        load("translation").translate(texts)


@pytest.mark.parametrize(("keyword", "value"), [("engine", "fast"), ("device", "gpu")])
def test_engines_and_devices_have_names(keyword: str, value: str, load: Any) -> None:
    with pytest.raises(ConfigError, match=f"{keyword}: expected"):
        seqloom.load(load("translation").folder, **{keyword: value})  # type: ignore[arg-type]


def test_parts_of_a_model_are_told_apart(load: Any) -> None:
    model = load("translation")
    weights = model.network.state_dict()
    with pytest.raises(ConfigError, match="tokenizer: expected a Tokenizer or a path"):
        seqloom.assemble(model.config, weights, model.tokenizer)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="labels: expected"):
        seqloom.assemble(model.config, model.tokenizer, weights, labels="abc")


def test_a_configuration_to_train_is_a_file() -> None:
    with pytest.raises(ConfigError, match="config: expected the path of a configuration file, not dict"):
        seqloom.train({"task": "translation"})  # type: ignore[arg-type]


def test_a_scorecard_knows_its_metrics(load: Any) -> None:
    card = load("translation").evaluate(metrics=["bleu"], samples=2)
    assert "bleu" in card
    assert list(card) == ["bleu"]
    with pytest.raises(KeyError, match="chrf: there is bleu"):
        card["chrf"]
