"""Switches of an architecture that exclude each other are refused, and no other format takes them silently."""

from typing import Any

import pytest

from parity.trained import make_model
from seqloom.config.dump import dump
from seqloom.errors import ConfigError, RunError
from seqloom.hub.ctranslate2 import find_kind
from seqloom.hub.huggingface.export import plan_export
from seqloom.hub.onnx.export import plan_graphs
from seqloom.tasks import Task
from seqloom.tasks.configuration import parse
from seqloom.tasks.template import render

START = 'task = "translation"\ndata.train = {source = "a.de", target = "a.en"}\n'


@pytest.mark.parametrize(
    ("keys", "why"),
    {
        "feedforward = false\nhidden_dim = 12": "hidden_dim and activation are of the feed-forward network",
        'feedforward = false\nactivation = "gelu"': "hidden_dim and activation are of the feed-forward network",
        'norm = "none"\nnorm_position = "post"': "norm_position are of a norm",
        'norm = "none"\ninput_norm = true': "input_norm and norm_position are of a norm",
        'norm = "none"\nnorm_epsilon = 1e-3': "norm_epsilon, input_norm",
        "chunked_heads = true\nnum_heads = 4\nnum_kv_heads = 2": "gives each head keys of its own",
        "chunked_heads = true\nnum_heads = 3\nhead_dim = 8": "splits model_dim = 256 into num_heads = 3",
        'family = "convolutional"\ndilation_base = 7\nnum_layers = 20': "a smaller base or fewer layers",
        'family = "recurrent"\nfeedforward = false': "feedforward",
        'score = "cosine"': "score",
    }.items(),
)
def test_what_does_not_go_together_is_refused(keys: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse(f"{START}[model.encoder]\n{keys}\n")


@pytest.mark.parametrize(
    ("keys", "idle"),
    [
        ('family = "recurrent"\nscore = "additive"\nbridge = "copy"\ncontext = "every-step"', "context bridge score"),
        (
            'family = "convolutional"\nscore = "dot"\nnum_heads = 2\nchunked_heads = true',
            "num_heads score chunked_heads",
        ),
        ('family = "convolutional"\nnum_heads = 1', ""),
        ('family = "transformer"\nscore = "dot"\nchunked_heads = true', ""),  # of self-attention
    ],
)
def test_keys_of_a_source_that_is_not_there_are_named(keys: str, idle: str) -> None:
    task = parse(f'task = "language-model"\ndata.train.files = "a"\n[model.decoder]\n{keys}\n')
    assert isinstance(task, Task)
    sentence = "model.decoder.{} changes nothing: a language model has no source"
    assert task.describe_idle_keys() == [sentence.format(key) for key in idle.split()]
    task = parse(f"{START}[model.decoder]\n{keys}\n".replace('bridge = "copy"\n', ""))
    assert isinstance(task, Task)
    assert task.describe_idle_keys() == []


def test_chunks_of_the_source() -> None:
    widths = "[model.encoder]\nmodel_dim = 10\nnum_heads = 5\n[model.decoder]\nmodel_dim = 16\nnum_heads = 4\n"
    text = START + 'model.tie_embeddings = "none"\n' + widths
    assert parse(text)
    with pytest.raises(ConfigError, match=r"states of width 10 into decoder\.num_heads = 4"):
        parse(text + "chunked_heads = true\n")


SWITCHES: dict[str, dict[str, Any]] = {
    'score = "dot"': {"score": "dot"},
    'score = "additive"': {"score": "additive"},
    "chunked_heads = true": {"chunked_heads": True},
    "feedforward = false": {"feedforward": False},
    "residual = false": {"residual": False},
    'norm = "none"': {"norm": "none"},
}
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "gate = false": {"gate": False},
    "residual = false": {"residual": False},
    "dilation_base = 2": {"dilation_base": 2},
}
SIZES = {"num_layers": 1, "model_dim": 12, "num_heads": 2, "positions": "sinusoidal"}


@pytest.mark.parametrize("task", ["translation", "language-model", "masked-language-model", "tagging"])
@pytest.mark.parametrize("name", SWITCHES)
def test_other_formats_refuse_a_switch_by_name(task: str, name: str) -> None:
    part = "decoder" if task == "language-model" else "encoder"
    sections = {part: SIZES | SWITCHES[name]} | ({"decoder": SIZES} if task == "translation" else {})
    model = make_model(task, sections)
    plans = [plan_graphs, plan_export] + ([] if task == "tagging" else [find_kind])
    for plan in plans:
        with pytest.raises(RunError, match=rf"model\.{part}\.{name}: cannot be exported: .*; train with .* seqloom"):
            plan(model)  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["rotary", "relative"])
@pytest.mark.parametrize("name", SWITCHES)
def test_layouts_with_rms_norm_refuse_a_switch_by_name(kind: str, name: str) -> None:
    stack = SIZES | {"norm": "rms", "positions": kind, "bias": False} | SWITCHES[name]
    tasks = {
        "rotary": ("language-model", {"decoder": stack}),
        "relative": ("translation", {"encoder": stack, "decoder": stack}),
    }
    task, sections = tasks[kind]
    with pytest.raises(RunError, match=rf"{name}: cannot be exported: .*; train with .* seqloom"):
        plan_export(make_model(task, sections | {"output_bias": False}))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_graphs_refuse_a_switch_of_a_convolution_by_name(name: str) -> None:
    stack = {"family": "convolutional", "num_layers": 1, "model_dim": 12} | CONVOLUTIONS[name]
    for task, part in (("language-model", "decoder"), ("tagging", "encoder")):
        with pytest.raises(RunError, match=rf"model\.{part}\.{name}: cannot be exported: .*; train with .* seqloom"):
            plan_graphs(make_model(task, {part: stack}))


def test_a_recurrent_model_has_its_own_score_and_residual() -> None:
    stack = {"family": "recurrent", "num_layers": 1, "model_dim": 12}
    assert plan_graphs(make_model("translation", {"encoder": stack, "decoder": stack | {"score": "additive"}}))


@pytest.mark.parametrize("task", ["translation", "language-model"])
def test_every_switch_is_written_down_with_its_meaning(task: str) -> None:
    full = render(task, full=True)
    for key in ("score", "chunked_heads", "feedforward", "residual"):
        assert f"{key} = " in full
    assert parse(dump(parse(full))) == parse(full)
