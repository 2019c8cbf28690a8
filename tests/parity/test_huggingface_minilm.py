"""all-MiniLM-L6-v2, real published weights: the vectors of `transformers`, and the figure on its card."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.published import transformers
from seqloom.predict.load import load
from seqloom.predict.model import Model
from shared_data import corpus
from weights import minilm

TEXTS = [
    "A girl is styling her hair.",
    "Naïve cafés, déjà vu & co.: 3.14 % of 中文 text!",
    "x",
    "The quick brown fox jumps over the lazy dog, again and again, until nobody looks any more. " * 4,
]
CARD = 0.8203246731  # Spearman on the test split, as on the model's card


@pytest.fixture(scope="module")
def model() -> Model:
    return load(minilm())


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Each text's ids and token states, one text at a time, and its vector by the steps on the card."""
    folder = minilm()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModel.from_pretrained(folder).eval()

    def encode(text: str) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        ids = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states = network(**ids).last_hidden_state[0]
        return ids["input_ids"][0].tolist(), states, torch.nn.functional.normalize(states.mean(0), dim=0)

    return encode


def test_token_states(model: Model, theirs: Any) -> None:
    for text, ours in zip(TEXTS, model.embed(TEXTS, level="token"), strict=True):
        ids, states, _ = theirs(text)
        assert [model.tokenizer.id(token) for token in ours.tokens] == ids[1:-1]
        np.testing.assert_allclose(ours.vectors, states[1:-1].numpy(), rtol=0, atol=1e-5)


def test_sentence_vectors(model: Model, theirs: Any) -> None:
    expected = np.stack([theirs(text)[2].numpy() for text in TEXTS])
    np.testing.assert_allclose(model.embed(TEXTS), expected, rtol=0, atol=1e-5)


def test_sts_benchmark(model: Model) -> None:
    bench = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "stsb.py"))
    assert bench["judge"](model, corpus("stsb/stsb-en-test.csv.gz")) == pytest.approx(CARD, abs=0.002)
