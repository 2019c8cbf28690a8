"""The network is the truth while a model is in use: in streams, threads and copies, in modes of PyTorch, elsewhere."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom
from contracts.answers import LENGTH, TEXTS, Answers, ask, compare
from contracts.mutation import find_parts
from contracts.mutations import ONE
from contracts.random_models import build, find_folder, save_run
from seqloom.errors import SeqloomError
from seqloom.nn.feedforward import FeedForward
from seqloom.types import TokenBatch

pytestmark = pytest.mark.usefixtures("as_users_run")
ENGINES = pytest.mark.parametrize("engine", ["compiled", "open"])
SEARCHED = ("translation/transformer", "language-model/transformer", "language-model/recurrent")
STREAMED = ("language-model/transformer", "language-model/recurrent", "language-model/convolutional", "gpt2", "llama")
READ = ("classification/transformer", "tagging/recurrent", "masked-language-model/convolutional")
MIXED = ("translation/transformer", "language-model/recurrent", "classification/transformer")
LONG = {"sample": True, "seed": 3, "max_length": 12, "min_length": 12}
"""A search whose tokens, being drawn, show small changes of the weights."""


# ------------------------------------------------------------------------------------------------------- streaming


@ENGINES
@pytest.mark.parametrize("edit", ["in-place", "load_state_dict", "data", "numpy-view", "data-set", "replaced-layer"])
@pytest.mark.parametrize("name", STREAMED[:2])
def test_a_stream_ends_with_the_weights_it_began_with(name: str, edit: str, engine: Any) -> None:
    check_stream(name, edit, engine)


@ENGINES
@pytest.mark.parametrize("name", STREAMED[2:])
def test_every_stream_ends_with_the_weights_it_began_with(name: str, engine: Any) -> None:
    check_stream(name, "load_state_dict", engine)


def check_stream(name: str, edit: str, engine: Any) -> None:
    folder = find_folder(name)
    whole = list(seqloom.load(folder, engine=engine).stream(TEXTS[0], **LONG))
    other, _ = ONE[edit].apply(seqloom.load(folder, engine="open"))
    afterwards = list(other.stream(TEXTS[0], **LONG))
    assert whole[3:] != afterwards[3:], f"{edit} on {name} should change what is drawn"
    model = seqloom.load(folder, engine=engine)
    bits = model.stream(TEXTS[0], **LONG)
    found = [next(bits) for _ in range(3)]
    ONE[edit].apply(model)
    assert found + list(bits) == whole, f"{edit} on {name} ({engine}) in the middle of a stream changes its end"
    assert list(model.stream(TEXTS[0], **LONG)) == afterwards, f"{edit} on {name} ({engine}): the next stream"


def test_two_streams_of_one_model_keep_their_weights() -> None:
    folder = find_folder("language-model/transformer")
    model = seqloom.load(folder, engine="compiled")
    before = list(model.stream(TEXTS[0], **LONG))
    old = model.stream(TEXTS[0], **LONG)
    found_old = [next(old)]
    ONE["in-place"].apply(model)
    after = list(model.stream(TEXTS[0], **LONG))
    new, found_new = model.stream(TEXTS[0], **LONG), []
    for bit in new:  # in turns, until both are at their end
        found_new.append(bit)
        found_old += [next(old)] if len(found_old) < len(before) else []
    assert found_old == before, "the stream that began before the edit"
    assert found_new == after, "the stream that began after it"


# --------------------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("name", ["translation/transformer", "language-model/transformer", "tagging/recurrent"])
def test_two_threads_and_a_change_between_their_calls(name: str) -> None:
    folder = find_folder(name)
    model = seqloom.load(folder, engine="compiled")
    answers = [ask(seqloom.load(folder, engine="open"))]
    other, _ = ONE["load_state_dict"].apply(seqloom.load(folder, engine="open"))
    answers.append(ask(other))
    with ThreadPoolExecutor(2) as pool:
        for expected, state in zip(answers, ("as loaded", "changed"), strict=True):
            for found in pool.map(lambda _: ask(model), range(3)):
                assert not (difference := compare(found, expected)), f"{name}, {state}, in two threads: {difference}"
            if state == "as loaded":
                ONE["load_state_dict"].apply(model)


# ---------------------------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize(
    "make", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"]
)
def test_a_copy_has_weights_of_its_own(name: str, make: Callable[[Any], Any]) -> None:
    model = seqloom.load(find_folder(name), engine="compiled")
    before = ask(model)
    other = make(model)
    assert not compare(ask(other), before), f"a copy of {name}"
    ONE["in-place"].apply(model)
    assert not compare(ask(other), before), f"a copy of {name} follows the weights of the original"
    assert compare(ask(model), before, 1e-3), f"{name} does not follow its own weights any more"


# ----------------------------------------------------------------------------------------------- modes of PyTorch


@pytest.mark.parametrize("name", MIXED)
def test_gradients_may_be_wanted(name: str) -> None:
    folder = find_folder(name)
    changed, _ = ONE["in-place"].apply(seqloom.load(folder, engine="open"))
    expected = {"as loaded": ask(seqloom.load(folder, engine="open")), "edited": ask(changed)}
    model = seqloom.load(folder, engine="compiled")
    model.network.requires_grad_(True)
    for state, wanted in expected.items():
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode():
                difference = compare(ask(model), wanted)
            assert not difference, f"{name}, {state}, in {mode.__name__}: {difference}"
        if state == "as loaded":
            ONE["in-place"].apply(model)


@pytest.mark.parametrize("name", SEARCHED[:2] + READ[:1])
@pytest.mark.parametrize("edit", ["load_state_dict", "in-place", "numpy-view"])
def test_a_model_may_be_loaded_in_inference_mode(name: str, edit: str) -> None:
    """Its weights then have no version that counts their changes."""
    folder = find_folder(name)
    expected, _ = ONE[edit].apply(seqloom.load(folder, engine="open"))
    with torch.inference_mode():
        model = seqloom.load(folder, engine="compiled")
        ask(model)
        ONE[edit].apply(model)
    difference = compare(ask(model), ask(expected))
    assert not difference, f"{edit} on {name}, loaded in inference mode: {difference}"


@ENGINES
@pytest.mark.parametrize("name", SEARCHED + READ)
def test_dropout_is_never_heard(name: str, engine: Any) -> None:
    check_training(name, "", engine)


@pytest.mark.parametrize("part", ["encoder", "decoder", "source_embedding"])
def test_dropout_in_a_part_is_never_heard(part: str) -> None:
    check_training("translation/transformer", part, "compiled")


def check_training(name: str, part: str, engine: Any) -> None:
    """A network, or a part of it, that is left in training is refused with a reason, or answers as in use."""
    model = seqloom.load(find_folder(name), engine=engine)
    before = ask(model)
    model.network.get_submodule(part).train()
    for found in (_ask_in_training(model), _ask_in_training(model)):
        if isinstance(found, str):
            assert "train" in found, f"{name}: a refusal says why: {found}"
        else:
            assert not (difference := compare(found, before)), f"{name}, {part or 'all'} in training: {difference}"
    model.network.eval()
    assert not compare(ask(model), before), f"{name}, in use again"


def _ask_in_training(model: Any) -> Answers | str:
    try:
        return ask(model)
    except SeqloomError as error:
        return str(error)


@pytest.mark.parametrize("place", ["expand", "contract"])
def test_a_hook_in_a_feed_forward_network_counts_with_a_gradient_too(place: str) -> None:
    network = build("language-model/transformer")[2].eval()
    _, feedforward = find_parts(network, FeedForward)[0]
    ids = torch.arange(5, 11)[None]
    batch = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool))
    plain = network(batch).detach()
    getattr(feedforward, place).register_forward_hook(lambda module, inputs, output: 3.0 * output)
    with torch.no_grad():
        expected = network(batch)
    assert not torch.allclose(plain, expected, atol=1e-2)
    torch.testing.assert_close(network(batch).detach(), expected, rtol=1e-5, atol=1e-5)


# --------------------------------------------------------------------------------------------------- CTranslate2


@pytest.mark.parametrize("name", ["translation/transformer", "language-model/grouped"])
@pytest.mark.parametrize("edit", ["load_state_dict", "in-place", "data-one-element", "numpy-view"])
def test_ctranslate2_follows_the_weights(name: str, edit: str, tmp_path: Path) -> None:
    """It gives the scores that it gives to a run which was saved with the edited weights."""
    pytest.importorskip("ctranslate2", reason="the engine; pip install ctranslate2")
    folder = find_folder(name)
    other, _ = ONE[edit].apply(seqloom.load(folder, engine="open"))
    save_run(tmp_path, other.config, other.tokenizer, other.labels, other.network)
    expected = _search(seqloom.load(tmp_path, engine="ctranslate2"))
    assert [text for text, _ in expected] == [text for text, _ in _search(other)], f"{edit} on {name}, open"
    model = seqloom.load(folder, engine="ctranslate2")
    before = _search(model)
    scores = [[score for _, score in answers] for answers in (before, expected)]
    assert scores[0] != pytest.approx(scores[1], abs=1e-3), f"{edit} on {name} should change something"
    _, undo = ONE[edit].apply(model)
    for time in ("first", "second"):
        _check_search(_search(model), expected, f"{edit} on {name}, asked for the {time} time")
    if undo is not None:
        undo()
        _check_search(_search(model), before, f"{edit} on {name}, undone")


@pytest.mark.filterwarnings("ignore:CTranslate2")
@pytest.mark.parametrize("edit", ["hook-global", "subclass-feed-forward", "attribute-epsilon", "own-forward-layer"])
def test_ctranslate2_ignores_nothing(edit: str) -> None:
    """What it cannot run is answered by the network itself, or refused."""
    pytest.importorskip("ctranslate2", reason="the engine; pip install ctranslate2")
    folder = find_folder("translation/transformer")
    model = seqloom.load(folder, engine="ctranslate2")
    before = _search(model)
    _, undo = ONE[edit].apply(model)
    try:
        found = _search(model)
        others = [score for _, score in before]
        assert [score for _, score in found] != pytest.approx(others, abs=1e-4), f"{edit} is ignored"
    except SeqloomError as error:
        assert len(str(error).split()) > 3, "a refusal is a sentence"  # noqa: PT017
    finally:
        assert undo is not None
        undo()
    _check_search(_search(model), before, f"{edit}, undone")


def _search(model: Any) -> list[tuple[str, float]]:
    verb = model.translate if model.config.task == "translation" else model.generate
    return [(answer.text, answer.score) for answer in verb(TEXTS, max_length=LENGTH)]


def _check_search(found: list[tuple[str, float]], expected: list[tuple[str, float]], what: str) -> None:
    assert [text for text, _ in found] == [text for text, _ in expected], what
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-4), what
