"""Models in bfloat16 and int8: every Transformer answers each line by itself, and follows its network."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from contracts.answers import TEXTS, ask, compare
from contracts.random_models import NAMES, OWN, find_folder
from seqloom.errors import ConfigError
from seqloom.native import library
from seqloom.native.library import describe
from seqloom.predict.compiled import CompiledOutput
from seqloom.predict.compiler import compile_network
from seqloom.predict.invariance import STEPS_TOLERANCE, check_invariance

pytestmark = [
    pytest.mark.usefixtures("as_users_run"),
    pytest.mark.skipif(describe().level is None, reason=describe().reason),
]
LINES = [*TEXTS, "w1", "w12 w3 w3 w3 w4 w9 w8 w7 w6 w5 w4 w3 w2 w1"]
TASKS = (
    *("translation", "classification", "regression", "tagging"),
    *("language-model", "bidirectional-language-model", "masked-language-model"),
)
OTHERS = {
    "language-model/window": "attends within a window",
    "language-model/attention": "has a block that the kernels do not compute",
    "translation/additive": "has a block that the kernels do not compute",
    "t5": "has positions that act on the scores of attention",
    **{
        name: "a part is not Seqloom's own, or is not of float32"
        for name, (task, _) in OWN.items()
        if task not in TASKS
    },
    **{name: "is no Transformer" for name in NAMES if name.endswith(("recurrent", "convolutional", "copied"))},
}
SERVED = [name for name in NAMES if name not in OTHERS]
PRECISIONS: Any = ("bfloat16", "int8")
narrow = pytest.mark.parametrize("precision", PRECISIONS)


@narrow
@pytest.mark.parametrize("name", SERVED)
def test_each_line_is_answered_by_itself_to_the_last_bit(name: str, precision: Any) -> None:
    model = seqloom.load(find_folder(name), precision=precision)
    for check in check_invariance(model._predictor, LINES):
        assert not check.fault
        assert check.difference <= (STEPS_TOLERANCE[precision] if check.part == "steps" else 0.0), check.part


@narrow
@pytest.mark.parametrize("name", SERVED)
def test_answers_are_near_those_of_float32(name: str, precision: Any) -> None:
    folder = find_folder(name)
    vectors, exact = (seqloom.load(folder, precision=one).embed(LINES) for one in (precision, "float32"))
    error, size = np.linalg.norm(vectors - exact, axis=1), np.linalg.norm(exact, axis=1)
    assert error.min() > 0.0, "it was computed in float32"
    assert (error / size).max() < {"bfloat16": 0.05, "int8": 0.15}[precision]


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_are_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf'^precision = "int8": is for Transformers .* {OTHERS[name]}; leave it out$'
    ):
        seqloom.load(find_folder(name), precision="int8")


@narrow
def test_every_weight_of_a_block_and_of_the_output_is_narrow(precision: Any) -> None:
    network = compile_network(seqloom.load(find_folder("translation/transformer")).network, precision)
    packed = {name: one.__dict__["packed"].precision for name, one in network.named_modules() if _is_layer(one)}
    assert len(packed) == 2 * 4 + 2 * 7 + 1
    assert {*packed.values()} == {precision}
    assert isinstance(network.output, CompiledOutput)


def _is_layer(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Linear | CompiledOutput)


@narrow
@pytest.mark.parametrize("name", ["translation/transformer", "language-model/grouped", "bert"])
def test_answers_follow_the_network(name: str, precision: Any) -> None:
    model, folder = seqloom.load(find_folder(name), precision=precision), find_folder(name)
    before = ask(model)
    assert not compare(before, ask(seqloom.load(folder, precision=precision)))
    with torch.no_grad():
        next(p for n, p in model.network.named_parameters() if n.endswith("expand.weight")).numpy()[0] *= -2.0
    after = ask(model)
    assert compare(before, after)
    twins: Any = [copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for twin in twins:
        assert twin.precision == precision
        assert not compare(after, ask(twin))


@narrow
def test_a_network_that_cannot_be_copied_answers_in_float32_and_that_is_said(precision: Any) -> None:
    folder = find_folder("classification/transformer")
    model, calls = seqloom.load(folder, precision=precision), []
    model.network.encoder.register_forward_hook(lambda *_: calls.append(1))
    with pytest.warns(UserWarning, match=rf"^{precision} cannot compute the network as it is now \(.*hooks are on it"):
        found = model.embed(LINES)
    assert calls
    np.testing.assert_array_equal(found, seqloom.load(folder, engine="open").embed(LINES))


def test_only_the_compiled_engine_on_a_cpu_has_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = find_folder("translation/transformer")
    for engine in ("open", "ctranslate2", "ctranslate2-int8"):
        with pytest.raises(ConfigError, match=rf'^precision = "int8": only the engine compiled has it, not {engine}'):
            seqloom.load(folder, engine=engine, precision="int8")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="precision: "):
        seqloom.load(folder, precision="float16")  # type: ignore[arg-type]
    monkeypatch.setattr(library._State, "found", library.choose("none"))
    with pytest.raises(ConfigError, match=r"is computed by the kernels, and there are none\. PyTorch computes everyth"):
        seqloom.load(folder, precision="int8")


def test_a_model_says_its_precision() -> None:
    model = seqloom.load(find_folder("bert"), precision="int8")
    assert model.precision == "int8"
    assert "engine compiled in int8 on cpu" in repr(model)
    assert " in " not in repr(seqloom.load(find_folder("bert")))
