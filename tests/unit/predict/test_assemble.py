"""Weights from anywhere become a model, a model becomes a folder, and the folder the same model."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import seqloom
from seqloom.config.tokenizer import Words
from seqloom.predict.results import Vector
from seqloom.runs.checkpoint import verify_folder
from seqloom.text import Tokenizer
from small_corpora import sentences
from small_runs import Runs

TEXTS = sentences(3, seed=3)
STACK = {"num_layers": 1, "model_dim": 16, "num_heads": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "translation": {"encoder": STACK, "decoder": STACK},
    "language-model": {"decoder": STACK},
    "masked-language-model": {"encoder": STACK},
    "bidirectional-language-model": {"encoder": {"family": "recurrent", "num_layers": 1, "model_dim": 8}},
    "classification": {"encoder": {**STACK, "family": "transformer"}},
    "tagging": {"encoder": STACK},
}
LABELS = {"classification": ("bad", "good"), "tagging": ("A", "B", "C")}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(sentences(100, seed=1), Words(min_frequency=1))


def make(task: str, tokenizer: Tokenizer, seed: int = 1, **options: Any) -> tuple[seqloom.Model, dict[str, Tensor]]:
    """A model of random weights, and the weights as somebody else would hand them over."""
    config = {"task": task, "model": CONFIGS[task], **options}
    from seqloom.predict.load import _read_config

    torch.manual_seed(seed)
    labels = LABELS.get(task, ())
    weights = _read_config(config).build(tokenizer, labels).state_dict()
    return seqloom.assemble(config, tokenizer, weights, labels=labels), weights


def ask(model: seqloom.Model) -> Any:
    vectors = model.embed(TEXTS).tolist()
    match model.config.task:
        case "translation":
            found: Any = model.translate(TEXTS, beam=2, max_length=5)
        case "classification":
            found = model.classify(TEXTS)
        case "tagging":
            found = model.tag(TEXTS)
        case _:
            found = model.score(TEXTS)
    return vectors, found


@pytest.mark.parametrize("task", CONFIGS)
def test_a_saved_model_is_the_same_model(task: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model, _ = make(task, tokenizer)
    assert model.folder is None
    assert model.save(tmp_path / "one") == model.folder == tmp_path / "one"
    again = seqloom.load(tmp_path / "one")
    assert ask(again) == ask(model)
    assert (again.labels, again.config) == (model.labels, model.config)
    again.save(tmp_path / "two")
    for path in (tmp_path / "one").glob("*.*"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    assert set(json.loads((tmp_path / "two" / "manifest.json").read_text())["files"]) == {
        "config.toml",
        "labels.json",
        "model.safetensors",
        "tokenizer.json",
    }
    verify_folder(tmp_path / "two")


def test_a_configuration_may_be_a_table_text_or_a_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    first, weights = make("language-model", tokenizer)
    text = 'task = "language-model"\nmodel.decoder = {num_layers = 1, model_dim = 16, num_heads = 2}\n'
    (tmp_path / "lm.toml").write_text(text)
    tokenizer.save(tmp_path / "tokenizer.json")
    save_file({name: weights[name].clone() for name in weights}, tmp_path / "weights.safetensors")
    for config in (text, tmp_path / "lm.toml", str(tmp_path / "lm.toml"), first.config):
        other = seqloom.assemble(config, tmp_path / "tokenizer.json", str(tmp_path / "weights.safetensors"))
        assert ask(other) == ask(first)
    with pytest.raises(seqloom.ConfigError, match=r'did you mean "model_dim"'):
        seqloom.assemble(text.replace("model_dim", "modeldim"), tokenizer, weights)
    with pytest.raises(seqloom.ConfigError, match="there is no such file"):
        seqloom.assemble("nowhere.toml", tokenizer, weights)
    with pytest.raises(seqloom.ConfigError, match="task: it is missing"):
        seqloom.assemble({}, tokenizer, weights)
    with pytest.raises(seqloom.ConfigError, match="word-vectors has no network"):
        seqloom.assemble({"task": "word-vectors"}, tokenizer, weights)
    with pytest.raises(seqloom.ConfigError, match=r'lables: is not a known option; did you mean "labels"'):
        seqloom.assemble(text, tokenizer, weights, lables=())  # type: ignore[call-arg]


def test_weights_that_do_not_fit_are_named(tokenizer: Tokenizer) -> None:
    _, weights = make("tagging", tokenizer)
    config = {"task": "tagging", "model": CONFIGS["tagging"]}
    (head, *_), (norm, *_) = ([n for n in weights if part in n] for part in ("head", "norm"))
    wrong = {**weights, "extra.weight": torch.zeros(2), head: torch.zeros(7, 7)}
    del wrong[norm]
    with pytest.raises(seqloom.ConfigError) as error:
        seqloom.assemble(config, tokenizer, wrong, labels=LABELS["tagging"])
    assert str(error.value) == (
        f"state_dict: its weights are not those of its configuration: missing: {norm}; unexpected: extra.weight; "
        f"of another shape: {head} is (7, 7) and should be (3, 16)"
    )
    with pytest.raises(seqloom.ConfigError, match="is float64 and should be float32"):
        seqloom.assemble(config, tokenizer, {n: w.double() for n, w in weights.items()}, labels=LABELS["tagging"])
    with pytest.raises(seqloom.ConfigError, match="labels: a model for tagging needs them"):
        seqloom.assemble(config, tokenizer, weights)


def test_tied_weights_are_given_once_or_alike(tokenizer: Tokenizer) -> None:
    model, weights = make("language-model", tokenizer)
    once = {name: value for name, value in weights.items() if name != "output.weight"}
    assert len(once) < len(weights)
    assert ask(seqloom.assemble(model.config, tokenizer, once)) == ask(model)
    with pytest.raises(seqloom.ConfigError, match="different from what they are tied to"):
        seqloom.assemble(model.config, tokenizer, {**weights, "output.weight": weights["output.weight"] + 1})


def test_an_edited_network_is_saved_as_it_is(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model, _ = make("classification", tokenizer)
    model.save(tmp_path / "mine")
    before = ask(model)
    with torch.no_grad():
        model.network.head.weight.mul_(-2.0)  # type: ignore[operator, union-attr]
    model.save(tmp_path / "mine")  # its own folder
    assert ask(seqloom.load(tmp_path / "mine")) == ask(model) != before
    other, _ = make("classification", tokenizer, seed=2)
    model.network = other.network
    model.save(tmp_path / "mine")
    assert ask(seqloom.load(tmp_path / "mine")) == ask(other)


def double(model: Any) -> None:
    model.network.double()


def epsilon(model: Any) -> None:
    next(m for m in model.network.modules() if isinstance(m, nn.LayerNorm)).eps = 0.1


def hook(model: Any) -> None:
    model.network.encoder.register_forward_hook(lambda *_: None)


def replace(model: Any) -> None:
    model.network.head = nn.Sequential(model.network.head)


def forward(model: Any) -> None:
    model.network.head.forward = torch.relu


EDITS = {
    double: r"\.weight is float64 \(.*\), and its configuration says float32",
    epsilon: "eps is 0.1, and its configuration says 1e-05",
    hook: r"encoder\._forward_hooks is 1, and its configuration says 0",
    replace: "head is Sequential, and its configuration says Linear",
    forward: r"head\.forward is builtin_function_or_method, and its configuration says nothing",
}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_what_a_folder_cannot_hold_is_not_saved(edit: Any, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model, _ = make("classification", tokenizer)
    edit(model)
    with pytest.raises(seqloom.RunError, match=f"nothing was saved.*{EDITS[edit]}"):
        model.save(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_nothing_is_overwritten(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model, _ = make("tagging", tokenizer)
    (tmp_path / "notes.txt").write_text("precious")
    for folder in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(seqloom.RunError, match="is not empty"):
            model.save(folder)
    make("tagging", tokenizer, seed=2)[0].save(tmp_path / "other")
    with pytest.raises(seqloom.RunError, match="is not empty"):
        model.save(tmp_path / "other")


def test_a_trained_run_is_saved_elsewhere_and_not_over_itself(runs: Runs, tmp_path: Path) -> None:
    shutil.copytree(runs("tagging"), tmp_path / "run")
    model = seqloom.load(tmp_path / "run")
    with pytest.raises(seqloom.RunError, match="choose a new folder"):
        model.save(tmp_path / "run")
    model.save(tmp_path / "copy")
    for name in ("config.toml", "labels.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name
    assert seqloom.load(tmp_path / "copy").tag(TEXTS) == model.tag(TEXTS)


def test_what_is_held_says_what_it_is(tokenizer: Tokenizer, runs: Runs, tmp_path: Path) -> None:
    model, _ = make("tagging", tokenizer)
    size = sum(weights.numel() for weights in model.network.parameters())
    assert repr(model) == (
        f"<seqloom.Model tagging: transformer, {size / 1000:.1f}k weights, 3 labels (A, B, C), engine compiled on cpu>"
    )
    run = seqloom.Run(runs("translation"))
    assert repr(seqloom.load(run, engine="open")).endswith(
        f"weights, translates by sentence, engine open on cpu, {run.folder}>"
    )
    assert repr(run) == f"<seqloom.Run {run.folder}: finished>"
    assert repr(seqloom.Run(str(tmp_path))) == f"<seqloom.Run {tmp_path}: not started>"
    translation = seqloom.load(run).translate(TEXTS[0])
    assert repr(translation) == f"Translation(text={translation.text!r}, score={translation.score:.4g})"
    assert repr(seqloom.Classification("x" * 99, 0.5, pieces=2)).endswith("xxx', probability=0.5, pieces=2)")
    assert len(repr(model.tag(" ".join(TEXTS)))) < 200
    assert repr(model.embed("the cat", level="token")).startswith("TokenVectors(tokens=('the', 'cat'), ")
    assert repr(Vector(model.embed("the cat"))) == "Vector(vector=<16 float32>)"
