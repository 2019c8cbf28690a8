"""Widths for equal numbers of weights, counted exactly."""

from typing import Any

import pytest
import torch

from seqloom.config.tokenizer import Words
from seqloom.errors import ConfigError
from seqloom.lab.compare.widths import TOLERANCE, Width, count_weights, name_widths, refuse_fixed, solve
from seqloom.tasks.configuration import parse
from seqloom.text import Tokenizer

FAMILIES = ("transformer", "recurrent", "convolutional")
TOKENIZER = Tokenizer.train(["the cat sees a dog ."], Words(min_frequency=1, size=13))
FILES = {
    "translation": 'train = {source = "a", target = "b"}',
    "classification": 'train = {files = "a.tsv"}',
    "tagging": 'train = {files = "a.conll"}',
    "language-model": 'train = {files = "a.txt"}',
}


def make(task: str, family: str, *changes: str) -> Any:
    stack = "decoder" if task == "language-model" else "encoder"
    text = f'task = "{task}"\nsize = "tiny"\n[data]\n{FILES[task]}\n'
    return parse(text, [f"model.{stack}.family={family}", *changes])


@pytest.mark.parametrize("task", FILES)
@pytest.mark.parametrize("family", FAMILIES)
def test_counted_as_built(task: str, family: str) -> None:
    config, labels = make(task, family), ("a", "b")
    network = config.build(TOKENIZER, labels)
    assert count_weights(config, TOKENIZER, labels) == sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("task", FILES)
def test_families_of_equal_size(task: str) -> None:
    labels = ("a", "b")
    wanted = count_weights(make(task, "transformer"), TOKENIZER, labels)
    for family in FAMILIES:
        keys = name_widths(make(task, family))

        def count(dim: int, family: str = family, keys: list[str] = keys) -> int | None:
            try:
                return count_weights(make(task, family, *(f"{key}={dim}" for key in keys)), TOKENIZER, labels)
            except ConfigError:
                return None

        found = solve(wanted, count, family)
        assert abs(found.weights - wanted) <= TOLERANCE * wanted
        assert found.weights == count(found.model_dim)
        beside = [count(dim) for dim in range(max(1, found.model_dim - 24), found.model_dim + 24)]
        nearest = min(abs(one - wanted) for one in beside if one is not None)
        assert abs(found.weights - wanted) == nearest, "no neighbour is nearer"
    assert solve(wanted, lambda dim: wanted if dim == 64 else None, "x") == Width(64, wanted)


def test_nothing_is_computed_to_count() -> None:
    before = torch.get_default_device()
    config = make("classification", "transformer", "model.encoder.model_dim=65536", "model.encoder.num_layers=64")
    assert count_weights(config, TOKENIZER, ("a",)) > 10**12
    assert torch.get_default_device() == before


def test_too_far_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"no width of deep comes within 5% of 1,000 weights; model_dim = 8 has 1,100"
    ):
        solve(1000, lambda dim: {8: 1100, 16: 4000}.get(dim), "deep")
    with pytest.raises(ConfigError, match="no width is allowed for odd"):
        solve(1000, lambda dim: None, "odd")


def test_what_has_a_width_already_is_refused() -> None:
    with pytest.raises(ConfigError, match="is what `match` weights sets"):
        refuse_fixed(make("tagging", "transformer"), {"model.encoder.model_dim"})
    with pytest.raises(ConfigError, match=r"model\.embedding_dim"):
        refuse_fixed(make("tagging", "transformer", "model.initial_vectors=v.bin"), set())
    two = make("translation", "transformer", "model.decoder.model_dim=32", "model.tie_embeddings=output")
    with pytest.raises(ConfigError, match=r"there are two: encoder\.model_dim = 64 and decoder\.model_dim = 32"):
        name_widths(two)
