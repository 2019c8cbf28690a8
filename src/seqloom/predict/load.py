"""Making a `Model`: from a folder, or from a configuration, a tokeniser and weights."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from seqloom.config.base import check_language
from seqloom.config.data import ParallelData
from seqloom.errors import ConfigError
from seqloom.hub.bundle import Bundle
from seqloom.hub.ctranslate2 import Numbers
from seqloom.predict.ctranslate2 import RefreshedEngine, open_engine
from seqloom.predict.model import Model
from seqloom.predict.predictor import Predictor
from seqloom.predict.search import EngineName, Precision, check_keywords
from seqloom.predict.storage import fill_network, open_folder
from seqloom.runs.checkpoint import load_tensors
from seqloom.runs.machine import Device, choose_device
from seqloom.runs.run import Run
from seqloom.tasks import TASKS, Task
from seqloom.tasks.configuration import as_table, read_text, read_toml, resolve
from seqloom.text import Tokenizer


@check_keywords
def load(
    run: str | Path | Run,
    *,
    engine: EngineName = "compiled",
    precision: Precision = "float32",
    device: Device = "cpu",
    source_language: str | None = None,
    target_language: str | None = None,
) -> Model:
    """Open a run, one of its checkpoints, or a folder of published weights (Hugging Face's, ELMo's), as a model to use.

    A run that is not finished is opened with its best checkpoint so far, and a warning says so.

    `engine` is what computes: "compiled", "open" (the network itself), "ctranslate2" or "ctranslate2-int8". `precision`
    is that of the compiled copy: "bfloat16" and "int8" are faster on processors that have them, and round. `device` is
    where: "cpu", "cuda", "mps", or "auto" for the best one available. The languages of a translation model, as BCP 47
    tags, say where a sentence ends; by default, they are those of its configuration.

    Example:
        mt = seqloom.load("runs/de-en")
        mt.translate("Guten Morgen", beam=5).text
    """
    languages = {"source_language": source_language, "target_language": target_language}
    folder = run.folder if isinstance(run, Run) else Path(run)
    return Model(open_predictor(folder, engine, device, languages, precision))


@check_keywords
def assemble(
    config: str | Path | Mapping[str, Any] | Task,
    tokenizer: Tokenizer | str | Path,
    state_dict: Mapping[str, Tensor] | str | Path,
    *,
    labels: Sequence[str] = (),
    engine: EngineName = "compiled",
    precision: Precision = "float32",
    device: Device = "cpu",
) -> Model:
    """Make a model from a configuration, a tokeniser and a state dict, wherever they come from.

    `config` is the path of a TOML file, TOML text, or a dict of the same keys; only `task`, `size` and `model` matter,
    and `data` may be left out. `tokenizer` may be the path of a `tokenizer.json`, `state_dict` that of a safetensors
    file. A classification or tagging model needs its `labels`, in the order of its outputs. `Model.save` writes a run.

    Example:
        config = {"task": "language-model", "model": {"decoder": {"num_layers": 2, "model_dim": 64}}}
        model = seqloom.assemble(config, "tokenizer.json", "model.safetensors")
        model.save("runs/mine")
    """
    task = config if isinstance(config, Task) else _read_config(config)
    if not isinstance(tokenizer, Tokenizer):
        if not isinstance(tokenizer, str | Path):
            raise ConfigError(f"tokenizer: expected a Tokenizer or a path, not {type(tokenizer).__name__}")
        tokenizer = Tokenizer.load(tokenizer)
    path = state_dict if isinstance(state_dict, str | Path) else None
    weights = load_tensors(Path(path)) if path is not None else state_dict
    if not isinstance(weights, Mapping):
        raise ConfigError(f"state_dict: expected tensors by name or a path, not {type(weights).__name__}")
    outputs = _check_labels(task, tuple(labels))
    network = task.build(tokenizer, outputs)
    fill_network(network, weights, ConfigError(str(path or "state_dict")))
    return Model(_make_predictor(Bundle(task, tokenizer, outputs, network), None, engine, precision, device))


def open_predictor(
    folder: Path,
    engine: EngineName = "compiled",
    device: Device = "cpu",
    languages: Mapping[str, str | None] = MappingProxyType({}),
    precision: Precision = "float32",
) -> Predictor:
    """The predictor of a folder, for the verbs of the command line."""
    found = open_folder(folder)
    given = {name: tag for name, tag in languages.items() if tag is not None}
    return _make_predictor(_set_languages(found, given) if given else found, folder, engine, precision, device)


def _set_languages(found: Bundle, given: Mapping[str, str]) -> Bundle:
    data = found.config.data
    for name, tag in given.items():
        if not isinstance(data, ParallelData):
            raise ConfigError(f"{name}: only translation models have one; leave it out")
        try:
            check_language(tag)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from None
    return replace(found, config=found.config.model_copy(update={"data": data.model_copy(update=given)}))


def _make_predictor(
    found: Bundle, folder: Path | None, engine: EngineName, precision: Precision, device: Device
) -> Predictor:
    found.network.to(choose_device(device, key="device"))
    predictor = Predictor(found, folder, private=True, engine=engine, precision=precision)
    if engine in ("ctranslate2", "ctranslate2-int8"):
        numbers: Numbers = "int8" if engine == "ctranslate2-int8" else "float32"
        first = None if folder is None else open_engine(found, folder, numbers)
        predictor.engine = RefreshedEngine(predictor, numbers, first)
    return predictor


def _read_config(config: str | Path | Mapping[str, Any]) -> Task:
    """A configuration, which needs no data; a string that contains a line break or `=` is TOML text."""
    name, text, base = "config", "", Path()
    if isinstance(config, Mapping):
        table = as_table(config)
    else:
        text = str(config)
        if isinstance(config, Path) or not ("\n" in text or "=" in text):
            name, base = text, Path(text).parent
            text = read_text(Path(text))
        table = read_toml(text, name)
    if kind := TASKS.get(str(table.get("task"))):
        data = table.setdefault("data", {})
        if isinstance(data, dict):
            data.setdefault("train", kind.example_files)
        if not issubclass(kind, Task):
            raise ConfigError(f"{name}: task: {table['task']} has no network to assemble")
    task = resolve({"tokenizer": {"kind": "file", "path": "tokenizer.json"}, **table}, text=text, name=name, base=base)
    assert isinstance(task, Task)
    return task


def _check_labels(task: Task, labels: tuple[str, ...]) -> tuple[str, ...]:
    known = task.find_labels(())
    if known == ("",) and not labels:  # it predicts a number
        return known
    labelled = known != ("",) and type(task).find_labels is not Task.find_labels
    if labelled and not labels:
        raise ConfigError(f"labels: a model for {task.task} needs them, in the order of its outputs")
    if labels and not labelled:
        raise ConfigError(f"labels: this model for {task.task} has none; leave them out")
    if len({*labels}) != len(labels):
        raise ConfigError("labels: one of them is given twice")
    return labels
