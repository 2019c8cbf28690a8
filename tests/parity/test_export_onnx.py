"""Models of ours as ONNX graphs: what is traced equals the model for any options, and ONNX Runtime runs it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from parity.published import CLOSE
from parity.trained import make_model, stacks
from seqloom.errors import RunError
from seqloom.hub.bundle import Bundle
from seqloom.hub.fidelity import compute, draw_samples, pad_samples
from seqloom.hub.onnx.export import check_folder, plan_graphs, write_folder

pytest.importorskip("onnxruntime", reason="the peer; pip install onnx onnxruntime onnxscript")
Made = tuple[str, dict[str, Any]]
READERS = ("tagging", "classification", "masked-language-model", "bidirectional-language-model")


@st.composite
def any_stacks(draw: st.DrawFn, *, decoder: bool, source: bool = False) -> dict[str, Any]:
    sizes = {"num_layers": draw(st.integers(1, 2)), "model_dim": 12}
    match draw(st.sampled_from(("transformer", "recurrent", "convolutional"))):
        case "recurrent":
            context = {"context": draw(st.sampled_from(("attention", "every-step", "initial-state")))}
            score = {"score": draw(st.sampled_from(("dot", "scaled-dot", "bilinear", "additive")))}
            cell = draw(st.sampled_from(("lstm", "gru", "rnn")))
            more = context | score if decoder and source else {}
            return {**sizes, "family": "recurrent", "cell": cell, "residual": draw(st.booleans()), **more}
        case "convolutional":
            kernel = draw(st.integers(1, 4))
            return {**sizes, "family": "convolutional", "kernel": kernel, "positions": draw(positions(decoder))}
        case _:
            window = draw(st.none() | st.integers(1, 6))
            kinds = [positions(decoder), st.sampled_from(("rotary", "alibi", "relative"))]
            return draw(
                stacks(
                    family="transformer",
                    model_dim=12,
                    num_heads=2,
                    num_kv_heads=draw(st.sampled_from((1, 2))),
                    head_dim=draw(st.sampled_from((None, 4))),
                    norm=draw(st.sampled_from(("layer", "rms"))),
                    norm_position=draw(st.sampled_from(("pre", "post"))),
                    input_norm=draw(st.booleans()),
                    activation=draw(st.sampled_from(("relu", "silu-gated"))),
                    normalise_qk=draw(st.booleans()),
                    window=window,
                    positions=draw(st.one_of(kinds)),
                )
            )


def positions(decoder: bool) -> st.SearchStrategy[Any]:
    kinds: tuple[Any, ...] = ("sinusoidal", "index", "none", {"kind": "learned", "table": 50, "combine": "concat"})
    one_hot = {"kind": "one-hot", "table": 50, "combine": "concat"}
    return st.sampled_from((*kinds, one_hot, *(() if decoder else ("normalised",))))


@st.composite
def makes(draw: st.DrawFn, task: str) -> Made:
    model: dict[str, Any] = {"scale_embeddings": draw(st.booleans())}
    if task == "language-model":
        return task, {**model, "decoder": draw(any_stacks(decoder=True))}
    model["encoder"] = draw(any_stacks(decoder=False))
    if task == "translation":
        model["decoder"] = draw(any_stacks(decoder=True, source=True))
    if task == "classification":
        model["pooling"] = draw(st.sampled_from(("attention", "mean", "max", "first")))
        model["head_activation"] = draw(st.sampled_from((None, "tanh")))
    if task == "masked-language-model":
        model["segments"] = draw(st.sampled_from((None, {"count": 2, "separator": 6})))
    return task, model


def take_steps(module: Any, ids: Tensor, past: list[Tensor], *source: Any) -> Tensor:
    """The scores of a text given token by token, and then the rest at once."""
    scores = []
    for part in (ids[:, :1], ids[:, 1:2], ids[:, 2:]):
        out, *past = module(part, *source, past)
        scores.append(out)
    return torch.cat(scores, dim=1)


@pytest.mark.parametrize("task", [*READERS, "language-model", "translation"])
@settings(max_examples=8)
@given(data=st.data())
@torch.no_grad()
def test_what_is_traced_is_the_model(task: str, data: st.DataObject) -> None:
    model = make_model(*data.draw(makes(task)))
    samples = draw_samples(model, 40)
    expected, real = compute(model, samples)
    graphs = plan_graphs(model)
    batch = pad_samples(samples.rows, 0)
    shapes = {name: s for name, s in graphs[-1].inputs.items() if name.startswith("past.")}
    sides = {"batch": len(batch.ids), "past": 0}
    past = [torch.zeros([sides.get(str(s), s) for s in shape]) for shape in shapes.values()]
    match task:
        case "language-model":
            found = take_steps(graphs[0].module, batch.ids, past, [])
        case "translation":
            read = graphs[0].module(batch.ids, batch.mask)
            count = sum(name.startswith("source.") for name in graphs[-1].inputs)
            source, start = list(read[:count]), list(read[count:])
            target = pad_samples(samples.targets, 0)
            found = take_steps(graphs[1].module, target.ids, start or past, batch.mask, source)
        case _:
            found = graphs[0].module(batch.ids, batch.mask)
    torch.testing.assert_close(found[real], expected[real], **CLOSE)


def small(task: str, family: str, **options: Any) -> Bundle:
    stack = {"num_layers": 1, "model_dim": 12, "family": family, **options}
    parts = {"language-model": ["decoder"], "translation": ["encoder", "decoder"]}.get(task, ["encoder"])
    return make_model(task, dict.fromkeys(parts, stack))


@pytest.mark.parametrize(
    ("task", "family", "options"),
    [
        pytest.param("translation", "recurrent", {"cell": "gru"}, marks=pytest.mark.long),
        ("language-model", "transformer", {"num_heads": 2, "positions": "relative", "num_kv_heads": 1}),
        ("classification", "recurrent", {"cell": "lstm"}),
        ("tagging", "convolutional", {}),
        ("language-model", "recurrent", {"cell": "rnn"}),
    ],
    ids=["translation", "language-model", "classification", "tagging", "rnn"],
)
def test_onnx_runtime_computes_the_same(task: str, family: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = small(task, family, **options)
    graphs = plan_graphs(model)
    write_folder(model, graphs, tmp_path)
    assert check_folder(model, graphs, tmp_path) < 1e-5


def test_the_option_that_prevents_it_is_named() -> None:
    with pytest.raises(RunError, match=r"^model.encoder.clip = 3.0"):
        plan_graphs(small("tagging", "recurrent", clip=3.0))
