"""Everything that may be done to a network, done to every model; and every single weight of it, one at a time."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import seqloom
from contracts.answers import ask, compare, compare_search
from contracts.mutation import Mutation
from contracts.mutations import ONE, list_mutations
from contracts.random_models import NAMES, find_folder
from contracts.test_truth import check_mutation
from contracts.test_truth_in_use import STREAMED, check_stream, check_training

pytestmark = pytest.mark.usefixtures("as_users_run")


def list_cases() -> Iterator[Any]:
    for name in NAMES:
        for label, mutation in list_mutations(seqloom.load(find_folder(name), engine="open").network).items():
            yield pytest.param(name, label, mutation, id=f"{name}-{label}")


@pytest.mark.parametrize(("name", "label", "mutation"), [*list_cases()])
def test_answers_follow_the_network(name: str, label: str, mutation: Mutation) -> None:
    check_mutation(name, label, mutation)


@pytest.mark.parametrize("name", NAMES)
def test_answers_follow_every_weight(name: str) -> None:
    """Each parameter and buffer is edited at one place, behind PyTorch's back, and the edits add up."""
    folder = find_folder(name)
    model = seqloom.load(folder, engine="compiled")
    for path in [*dict(model.network.named_parameters()), *dict(model.network.named_buffers())]:
        ask(model)
        other = seqloom.load(folder, engine="open")
        other.network.load_state_dict(model.network.state_dict())
        _copy_buffers(model.network, other.network)
        for network in (model.network, other.network):
            tensors = dict(network.named_parameters()) | dict(network.named_buffers())
            tensors[path].data.reshape(-1)[-1:].add_(1.0)
        found, expected = ask(model), ask(other)
        assert not (difference := compare(found, expected)), f"one number of {path} of {name}: {difference}"
        assert not (difference := compare_search(other)), f"{path} of {name}: {difference}"


@torch.no_grad()
def _copy_buffers(source: Any, target: Any) -> None:
    """Also those that are not saved."""
    for mine, other in zip(source.buffers(), target.buffers(), strict=True):
        other.copy_(mine)


@pytest.mark.parametrize("engine", ["compiled", "open"])
@pytest.mark.parametrize("edit", [edit for edit in ONE if edit.startswith(("load", "in-", "data", "num", "new"))])
@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_ends_with_the_weights_it_began_with(name: str, edit: str, engine: Any) -> None:
    check_stream(name, edit, engine)


@pytest.mark.parametrize("engine", ["compiled", "open"])
@pytest.mark.parametrize("name", NAMES)
def test_dropout_is_never_heard(name: str, engine: Any) -> None:
    check_training(name, "", engine)
