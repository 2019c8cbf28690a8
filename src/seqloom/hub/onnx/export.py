"""A model of ours as ONNX files that ONNX Runtime runs, for any number of rows of any length."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.errors import RunError
from seqloom.hub.framing import find_framing
from seqloom.hub.huggingface.layout import find_row_length, refuse
from seqloom.hub.imported import Imported
from seqloom.hub.onnx.graphs import Graph, list_graphs
from seqloom.hub.onnx.recurrence import list_translations
from seqloom.hub.samples import Rows, compute, draw_samples, measure_difference, pad_samples
from seqloom.models.seq2seq import Seq2Seq
from seqloom.tasks import Task

_OPSET = 20
_INSIDE = 1 << 30  # bytes of weights that a file of ONNX can hold itself, with room to spare


def import_onnx() -> None:
    """See that what is needed is there."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            import_module(name)
        except ImportError:
            raise RunError(f"{name} is not installed; pip install 'seqloom[export]'") from None


def plan_graphs(model: Imported) -> list[Graph]:
    """The graphs of a model; refused by the option that they cannot express."""
    for part in ("encoder", "decoder"):
        stack = getattr(model.config.model, part, None)
        for key in ("memory_dim", "clip"):
            if getattr(stack, key, None) is not None:
                raise refuse(f"model.{part}.{key}", getattr(stack, key), "ONNX has no projected LSTM")
    if getattr(model.config.model, "features", None) is not None:
        raise refuse("model.features", "…", "the features of another model are not part of the graph")
    return list_graphs(_copy(model))


def _copy(model: Imported) -> nn.Module:
    """The same network, laid out as it was built: what makes it quick in use cannot be traced."""
    config: Task = model.config
    network = config.build(model.tokenizer.vocab_size, model.labels)
    network.load_state_dict(model.network.state_dict(), strict=False)
    return network.eval().requires_grad_(False)


def write_checked(model: Imported, graphs: list[Graph], folder: Path) -> float:
    """Write it, run it, and say the largest difference."""
    write_folder(model, graphs, folder)
    return check_folder(model, graphs, folder)


@torch.no_grad()
def write_folder(model: Imported, graphs: list[Graph], folder: Path) -> None:
    """The graphs, the tokeniser, and what one must know to feed them."""
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
                dynamic_shapes=graph.name_sides(),
                custom_translation_table=translations,
                opset_version=_OPSET,
                external_data=not inside,
                dynamo=True,
                verbose=False,
            )
    framing, roles = find_framing(model.config, model.tokenizer), model.tokenizer.roles
    said = {
        "task": model.config.task,
        "before": framing.before,
        "after": framing.after,
        "start": framing.start,
        "end": framing.end,
        "pad": roles.pad,
        "never": framing.silent,
        "labels": model.labels,
        "graphs": {graph.name: {"inputs": graph.inputs, "outputs": graph.outputs} for graph in graphs},
    }
    (folder / "model.json").write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    model.tokenizer.save(folder / "tokenizer.json")


@contextmanager
def _quietly() -> Iterator[None]:
    """The tracer tells of much that is of no use here."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # the exporter takes Ctrl-C for a fault of the model
            raise KeyboardInterrupt from None
        raise
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def check_folder(model: Imported, graphs: list[Graph], folder: Path) -> float:
    """Run the graphs on samples; steps are taken in two parts, so that what is kept between them is used."""
    samples = draw_samples(model, find_row_length(model.config))
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


def _take_steps(run: Any, rows: Rows, kept: dict[str, Tensor], model: Imported) -> Tensor:
    ids = pad_samples(rows, model.tokenizer.roles.pad).ids
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
