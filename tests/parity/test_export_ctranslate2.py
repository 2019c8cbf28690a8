"""Models of ours as CTranslate2 computes them, and its searches as an engine of our verbs."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.trained import SIZE, make_model, stacks
from seqloom.errors import ConfigError, Notice, RunError
from seqloom.hub.bundle import Bundle
from seqloom.hub.ctranslate2 import check_folder, describe_ends, find_kind, write_folder
from seqloom.predict.ctranslate2 import CTranslate2Engine
from seqloom.predict.export import export
from seqloom.predict.model import Model
from seqloom.predict.predictor import Predictor
from seqloom.runs.run import TrainingRun

pytest.importorskip("ctranslate2", reason="the peer; pip install ctranslate2")
lines = st.lists(
    st.lists(st.integers(0, SIZE - 8), min_size=1, max_size=9).map(lambda ids: " ".join(f"w{n}" for n in ids)),
    min_size=1,
    max_size=4,
)
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu", "tanh", "silu-gated", "gelu-gated")
Made = tuple[str, dict[str, Any], dict[str, Any]]


@st.composite
def any_stacks(draw: st.DrawFn, kinds: tuple[str, ...], **fixed: Any) -> dict[str, Any]:
    kind = draw(st.sampled_from(kinds))
    positions = {"positions": kind} if kind in ("rotary", "relative", "alibi") else {}
    post = draw(st.booleans())
    more = {
        "norm_position": "post" if post else "pre",
        "input_norm": draw(st.booleans()),
        "norm": draw(st.sampled_from(("layer", "rms"))),
        "activation": draw(st.sampled_from(ACTIVATIONS)),
        "norm_epsilon": 1e-4,
    }
    return draw(
        stacks(**{**more, **positions, "model_dim": 12, "num_heads": draw(st.sampled_from((1, 2, 3))), **fixed})
    )


@st.composite
def makes(draw: st.DrawFn, task: str) -> Made:
    both = ("table", "rotary", "relative")
    table = {"positions": {"kind": draw(st.sampled_from(("sinusoidal", "learned"))), **{}}}
    model: dict[str, Any] = {"scale_embeddings": draw(st.booleans())}
    if task != "language-model":
        model["encoder"] = draw(any_stacks(both))
    if task != "masked-language-model":
        model["decoder"] = draw(any_stacks((*both, "alibi") if task == "translation" else ("table", "rotary", "alibi")))
    for stack in (model[key] for key in ("encoder", "decoder") if key in model):
        if isinstance(stack["positions"], dict) and stack["positions"]["kind"] == "one-hot":
            stack |= table
    if task == "translation":
        model["tie_embeddings"] = draw(st.sampled_from(("all", "output", "none")))
    if task == "language-model":
        return task, model, {"frame": {"before": draw(st.sampled_from(((), ("bos",)))), "after": "eos"}}
    return task, model, {}


def make(made: Made) -> Bundle:
    task, model, more = made
    return make_model(task, model, **more)


@pytest.mark.parametrize("task", ["translation", "language-model", "masked-language-model"])
@settings(max_examples=8)
@given(data=st.data())
def test_scores_are_the_same_there(task: str, data: st.DataObject) -> None:
    model = make(data.draw(makes(task)))
    with tempfile.TemporaryDirectory() as name:
        write_folder(model, Path(name))
        assert check_folder(model, Path(name)) < 1e-5


@pytest.mark.parametrize("task", ["translation", "language-model"])
@settings(max_examples=8)
@given(data=st.data(), texts=lines)
@torch.no_grad()
def test_greedy_texts_are_the_same(task: str, data: st.DataObject, texts: list[str]) -> None:
    model = make(data.draw(makes(task)))
    own = Model(Predictor(model))
    asked = {"max_length": data.draw(st.sampled_from((None, 1, 5))), "min_length": data.draw(st.sampled_from((0, 3)))}
    if asked["max_length"] == 1:
        asked["min_length"] = 0
    asked["avoid"] = data.draw(st.sampled_from(((), ("w1 w2", "w3"))))
    asked["prefix"] = data.draw(st.sampled_from(("", "w4", "w4 w5"))) if asked["max_length"] != 1 else ""
    with tempfile.TemporaryDirectory() as name:
        write_folder(model, Path(name))
        other = Model(Predictor(model))
        other._predictor.engine = CTranslate2Engine(model, Path(name), "float32")
        verb = "translate" if task == "translation" else "generate"
        for ours, theirs in zip(getattr(own, verb)(texts, **asked), getattr(other, verb)(texts, **asked), strict=True):
            assert theirs.text == ours.text
            assert theirs.tokens == ours.tokens
            assert theirs.finished == ours.finished


def small(task: str, **options: Any) -> Bundle:
    stack = {"num_layers": 1, "model_dim": 12, "num_heads": 2, **options}
    model = {"language-model": {"decoder": stack}}.get(task, {"encoder": stack, "decoder": stack})
    return make_model(task, {"encoder": stack} if task in ("tagging", "masked-language-model") else model)


def test_beams_give_as_many_answers_as_were_asked_for(tmp_path: Path) -> None:
    model = small("translation")
    write_folder(model, tmp_path)
    loaded = Model(Predictor(model))
    loaded._predictor.engine = CTranslate2Engine(model, tmp_path, "float32")
    found = loaded.translate("w1 w2 w3", beam=4, nbest=3, max_length=6)
    assert len({found.text, *(other.text for other in found.alternatives)}) == 3
    assert [other.score for other in found.alternatives] == sorted((o.score for o in found.alternatives), reverse=True)
    assert loaded.translate("").text == ""


def test_eight_bits_a_weight_change_a_score_a_little(tmp_path: Path) -> None:
    model = small("translation", model_dim=64, num_heads=4)
    write_folder(model, tmp_path)
    scores = {}
    for numbers in ("float32", "int8"):
        loaded = Model(Predictor(model))
        loaded._predictor.engine = CTranslate2Engine(model, tmp_path, numbers)
        scores[numbers] = loaded.translate("w1 w2 w3", min_length=5, max_length=5, prefix="w4 w5 w6").score
    assert scores["int8"] != scores["float32"]
    assert scores["int8"] == pytest.approx(scores["float32"], abs=0.05)  # a twentieth more or less probable


def test_what_it_does_in_another_way_is_refused(tmp_path: Path) -> None:
    model = small("translation")
    write_folder(model, tmp_path)
    loaded = Model(Predictor(model))
    loaded._predictor.engine = CTranslate2Engine(model, tmp_path, "float32")
    for asked in ({"sample": True}, {"constraints": ["w3"]}):
        with pytest.raises(ConfigError, match="leave `engine` out"):
            loaded.translate("w1", **asked)
    assert loaded.translate("w1", max_length=4).text


def test_a_folder_that_names_one_of_several_ends_says_so(tmp_path: Path) -> None:
    decoder = {"family": "transformer", "num_layers": 1, "model_dim": 12, "num_heads": 2}
    model = make_model("language-model", {"decoder": decoder}, end_tokens=["w3", "w5"])
    (tmp_path / "run").mkdir()
    model.tokenizer.save(tmp_path / "run" / "tokenizer.json")
    TrainingRun(tmp_path / "run").finish(model.network, model.config, model.labels, {})
    said = r"names one token that ends an answer, and this model has 3: pass end_token=\['\[EOS\]', 'w3', 'w5'\]"
    with pytest.warns(Notice, match=said):
        export(tmp_path / "run", "ctranslate2", tmp_path / "out")
    single = make_model("language-model", {"decoder": decoder})
    assert describe_ends(single) is None


REFUSALS: dict[str, tuple[str, dict[str, Any]]] = {
    'model.encoder.positions = "alibi"': ("translation", {"positions": "alibi"}),
    "model.encoder.window = 3": ("translation", {"window": 3}),
    "model.decoder.normalise_qk = true": ("language-model", {"normalise_qk": True}),
    'model.decoder.activation = "squared-relu"': ("language-model", {"activation": "squared-relu"}),
    "model.decoder.num_kv_heads = 1": ("translation", {"num_kv_heads": 1}),
    'model.decoder.positions = "relative"': ("language-model", {"positions": "relative"}),
    'task = "tagging"': ("tagging", {}),
}


@pytest.mark.parametrize("option", REFUSALS)
def test_the_option_that_prevents_it_is_named(option: str) -> None:
    task, options = REFUSALS[option]
    with pytest.raises(RunError, match="^" + option):
        find_kind(small(task, **options))
