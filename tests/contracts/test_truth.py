"""The network is the truth: whatever is done to it, the model answers as an open one to which the same was done.

Each model has answered before it is changed, so that anything compiled from the old network exists. The open model has
never answered before its change. Both are then asked the same.
"""

import re
from typing import Any

import pytest

import seqloom
from contracts.answers import Answers, ask, ask_again, compare, compare_part, compare_search
from contracts.mutation import Mutation
from contracts.mutations import KEY, ONE, list_mutations
from contracts.random_models import NAMES, build, find_folder
from contracts.replacements import STRUCTURE
from seqloom.errors import SeqloomError

THOROUGH = ("language-model/transformer", "classification/transformer", "tagging/convolutional")
"""Models to which everything is done; tests/long does it to the others, too."""
HOOKED = ("translation/transformer", "translation/recurrent")
"""Models with two stacks, whose modules may have hooks, and with the widest choice of them."""
REPEATED = re.compile(r"hook-(norm|block|feed-forward|linear|output)@|pre-hook-")
"""What need not be done to a second decoder."""
pytestmark = pytest.mark.usefixtures("as_users_run")


def choose(name: str) -> dict[str, Mutation]:
    """What is done to a model here."""
    if name in THOROUGH + HOOKED:
        everything = list_mutations(build(name)[2])
        if name in THOROUGH:
            spared = REPEATED if name.startswith("language-model") else re.compile("$")
            return {label: mutation for label, mutation in everything.items() if not spared.match(label)}
        wanted = STRUCTURE if name == "translation/transformer" else {}
        return {label: everything[label] for label in everything if label in (*KEY, *wanted) or label not in ONE}
    return {label: ONE[label] for label in KEY}


CASES = [
    pytest.param(name, label, mutation, id=f"{name}-{label}")
    for name in NAMES
    for label, mutation in choose(name).items()
]


@pytest.mark.parametrize("name", [*THOROUGH, *HOOKED, "language-model/recurrent"])
def test_loading_and_asking_leave_the_network_as_it_is_built(name: str) -> None:
    built = dict(build(name)[2].named_modules())
    model = seqloom.load(find_folder(name), engine="compiled")
    ask(model)
    for path, module in model.network.named_modules():
        where = f"{path or 'the network'} of {name}"
        assert type(module) is type(built[path]), where
        own = [{key: type(value) for key, value in vars(part).items()} for part in (module, built[path])]
        assert own[0] == own[1], f"{where} has other attributes than when it is built"
        for key, parameter in module.named_parameters(recurse=False):
            assert parameter.is_contiguous(), f"{key} of {where} lies in memory in another order"
            assert parameter.is_leaf, f"{key} of {where}"


@pytest.mark.parametrize(("name", "label", "mutation"), CASES)
def test_answers_follow_the_network(name: str, label: str, mutation: Mutation) -> None:
    check_mutation(name, label, mutation)


def check_mutation(name: str, label: str, mutation: Mutation) -> None:
    """A model that has answered is changed, asked twice and, where the change can be undone, asked again."""
    folder, what = find_folder(name), f"{label} on {name}"
    expected = _ask_changed(seqloom.load(folder, engine="open"), mutation, f"{what}, open")
    model, before = seqloom.load(folder, engine="compiled"), _ask_open(name)
    assert not (difference := compare_part(ask_again(model), before)), f"{name}, unchanged: {difference}"
    changed, undo = mutation.apply(model)
    try:
        found = _attempt(changed, mutation)
        if expected is None or found is None:
            assert expected is found is None, f"{what}: the compiled and the open model do not refuse alike"
            return
        assert not (difference := compare(found, expected, mutation.tolerance)), f"{what}: {difference}"
        difference = compare_part(ask_again(changed), expected, mutation.tolerance)
        assert not difference, f"{what}, asked again: {difference}"
        if not mutation.precision:
            assert compare(expected, before, 1e-3 if label != "double" else 0.0), f"{what} should change something"
        if changed is not model:
            assert not (difference := compare(ask(model), before)), f"{what} changes the original: {difference}"
    finally:
        if undo is not None:
            undo()
    if undo is not None:
        assert not (left := compare_part(ask_again(changed), before)), f"{what}, undone, leaves something: {left}"


def _ask_changed(model: Any, mutation: Mutation, what: str) -> Answers | None:
    """What a model says that never spoke before; its searches must find what its scores say."""
    changed, undo = mutation.apply(model)
    try:
        found = _attempt(changed, mutation)
        if found is not None:
            difference = compare_search(changed, max(5e-5, mutation.tolerance))
            assert not difference, f"{what}: {difference}"
        return found
    finally:
        if undo is not None:
            undo()


def _attempt(model: Any, mutation: Mutation) -> Answers | None:
    """The answers; None where the processor cannot compute them, and the model says so in a sentence."""
    try:
        return ask(model)
    except SeqloomError as error:
        if not (mutation.precision and len(str(error).split()) > 3):
            raise
        return None


_OPEN: dict[str, Answers] = {}


def _ask_open(name: str) -> Answers:
    if name not in _OPEN:
        _OPEN[name] = ask(seqloom.load(find_folder(name), engine="open"))
    return _OPEN[name]
