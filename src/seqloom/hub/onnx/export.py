"""A model of ours as ONNX graphs for ONNX Runtime, with any number of rows of any length."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom.hub.bundle import Bundle, find_special_tokens
from seqloom.hub.fidelity import Rows, compute, draw_samples, measure_difference, pad_samples, refusal, require_usual
from seqloom.hub.onnx.graphs import Graph, list_graphs
from seqloom.hub.onnx.recurrence import list_translations
from seqloom.models.seq2seq import Seq2Seq

_OPSET = 20
_INSIDE = 1 << 30  # bytes of weights that fit inside an ONNX file, with room to spare


def plan_graphs(model: Bundle) -> list[Graph]:
    """The graphs of a model; options that they cannot express are refused by name."""
    for part in ("encoder", "decoder"):
        require_usual(model.config, part, "ONNX graphs")
        stack = getattr(model.config.model, part, None)
        for key in ("memory_dim", "clip"):
            if getattr(stack, key, None) is not None:
                raise refusal(f"model.{part}.{key}", getattr(stack, key), "ONNX has no projected LSTM")
    if getattr(getattr(model.config.model, "decoder", None), "bridge", "learned") == "copy":
        raise refusal("model.decoder.bridge", "copy", "the graph of an encoder does not give its last state")
    if getattr(model.config.model, "features", None) is not None:
        raise refusal("model.features", "…", "the features of another model are not part of the graph")
    # A compiled network cannot be traced; a copy as it was built can.
    network = model.config.build(model.tokenizer, model.labels)
    network.load_state_dict(model.network.state_dict(), strict=False)
    return list_graphs(network.eval().requires_grad_(False))


@torch.no_grad()
def write_folder(model: Bundle, graphs: list[Graph], folder: Path) -> None:
    """Write the graphs, the tokeniser, and a description of inputs, outputs and special tokens."""
    translations = list_translations(getattr(import_module("onnxscript"), f"opset{_OPSET}"))
    inside = sum(parameter.nbytes for parameter in model.network.parameters()) < _INSIDE
    for graph in graphs:
        with _quietly():
            torch.onnx.export(
                graph.module,
                graph.make_inputs({"batch": 2, "length": 3, "past": 4, "source": 5}),
                folder / f"{graph.name}.onnx",
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes=graph.name_dims(),
                custom_translation_table=translations,
                opset_version=_OPSET,
                external_data=not inside,
                dynamo=True,
                verbose=False,
            )
    tokens, roles = find_special_tokens(model), model.tokenizer.roles
    description = {
        "task": model.config.task,
        "before": tokens.before,
        "after": tokens.after,
        "start": tokens.start,
        "ends": [] if tokens.end is None else [tokens.end, *tokens.more_ends],
        "pad": roles.pad,
        "target_pad": model.tokenizer.target.roles.pad,
        "never": tokens.suppressed,
        "labels": model.labels,
        "graphs": {graph.name: {"inputs": graph.inputs, "outputs": graph.outputs} for graph in graphs},
    }
    (folder / "model.json").write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    model.tokenizer.save(folder / "tokenizer.json")


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the tracer's warnings and messages."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # the exporter mistakes Ctrl-C for an error in the model
            raise KeyboardInterrupt from None
        raise
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def check_folder(model: Bundle, graphs: list[Graph], folder: Path) -> float:
    """Run the graphs on samples, in two parts so that the state is used, and return the largest difference."""
    samples = draw_samples(model, model.config.max_length)
    expected, real = compute(model, samples)
    runs = {graph.name: _open(folder / f"{graph.name}.onnx") for graph in graphs}
    batch = pad_samples(samples.rows, model.tokenizer.roles.pad)
    given = {"ids": batch.ids, "mask": batch.mask}
    if "past.0" not in graphs[-1].inputs:
        found = next(iter(_run(runs["model"], given).values()))
    elif isinstance(model.network, Seq2Seq):
        kept = {**_start(graphs[-1], len(batch.ids)), **_run(runs["encoder"], given), "mask": batch.mask}
        found = _take_steps(runs["decoder"], samples.targets, kept, model)
    else:
        found = _take_steps(runs["model"], samples.rows, _start(graphs[-1], len(batch.ids)), model)
    return measure_difference(expected, found, real)


def _take_steps(run: Any, rows: Rows, kept: dict[str, Tensor], model: Bundle) -> Tensor:
    ids = pad_samples(rows, model.tokenizer.target.roles.pad).ids
    scores = []
    for part in (ids[:, :1], ids[:, 1:]):
        if part.shape[1]:
            out = _run(run, {**kept, "ids": part})
            scores.append(out.pop("scores"))
            kept = kept | {name.replace("present.", "past."): tensor for name, tensor in out.items()}
    return torch.cat(scores, dim=1)


def _start(graph: Graph, rows: int) -> dict[str, Tensor]:
    sides = {"batch": rows, "past": 0}
    shapes = {name: shape for name, shape in graph.inputs.items() if name.startswith("past.")}
    return {name: torch.zeros([int(sides.get(str(s), s)) for s in shape]) for name, shape in shapes.items()}


def _open(path: Path) -> Any:
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _run(session: Any, given: dict[str, Tensor]) -> dict[str, Tensor]:
    wanted = [entry.name for entry in session.get_inputs()]
    names = [entry.name for entry in session.get_outputs()]
    arrays = session.run(names, {name: given[name].numpy() for name in wanted})
    return {name: torch.from_numpy(array) for name, array in zip(names, arrays, strict=True)}
