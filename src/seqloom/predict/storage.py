"""Model folders: opening one, and writing one with the current weights of a network."""

import json
import warnings
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path

import torch
from torch import Tensor, nn

from seqloom.errors import Notice, RunError, SeqloomError
from seqloom.hub.bundle import Bundle
from seqloom.hub.load import is_published, load_published
from seqloom.native.library import HOOKS
from seqloom.predict.predictor import Predictor
from seqloom.runs.checkpoint import verify_folder
from seqloom.runs.machine import describe_machine
from seqloom.runs.run import TrainingRun, find_base, read_seen
from seqloom.runs.weights import find_run, find_weights, read_weights
from seqloom.tasks import Task
from seqloom.tasks.configuration import load_resolved
from seqloom.text import Tokenizer

_NAMED = 8  # weights that a message lists


def open_folder(folder: Path) -> Bundle:
    """The model of a run or a checkpoint, or of a folder of published weights; a run that is not finished says so."""
    if is_published(folder):
        return load_published(folder)
    stored = find_weights(folder)
    verify_folder(stored.weights)
    config = load_resolved(stored.run / "config.toml")
    assert isinstance(config, Task)
    if stored.note:
        warnings.warn(stored.note, Notice, stacklevel=2)
    tokenizer = Tokenizer.load(stored.run / "tokenizer.json")
    labels = tuple(json.loads((stored.run / "labels.json").read_bytes()))
    network = config.build(tokenizer, labels)
    fill_network(network, read_weights(stored), RunError(str(stored.weights)))
    return Bundle(config, tokenizer, labels, network, read_seen(stored.run))


def identify(folder: Path) -> str:
    """A hash of the model: of its manifest, which holds the hashes of its files, or else of all files of the folder."""
    manifest, whole = folder / "manifest.json", sha256()
    if not manifest.exists() and (folder / "config.toml").exists() and not is_published(folder):
        manifest = find_weights(folder).manifest
    for path in [manifest] if manifest.exists() else sorted(path for path in folder.iterdir() if path.is_file()):
        with path.open("rb") as file:
            whole.update(file_digest(file, "sha256").digest())
    return whole.hexdigest()


def fill_network(network: nn.Module, weights: Mapping[str, Tensor], error: SeqloomError) -> None:
    """Copy weights into a network; if they do not fit, raise `error`, which names their origin, with the reasons.

    Of tied weights, one name is enough. Buffers are computed, so they may be left out.
    """
    parameters = dict(network.named_parameters(remove_duplicate=False))
    known: dict[str, Tensor] = {**parameters, **dict(network.named_buffers())}
    given = {id(parameters[name]) for name in weights if name in parameters}
    fitting = {name: tensor for name, tensor in weights.items() if name in known}
    faults = {
        "missing": [name for name, parameter in network.named_parameters() if id(parameter) not in given],
        "unexpected": [name for name in weights if name not in known],
        "of another shape": [
            f"{name} is {tuple(tensor.shape)} and should be {tuple(known[name].shape)}"
            for name, tensor in fitting.items()
            if tensor.shape != known[name].shape
        ],
        "of another type": [
            f"{name} is {str(tensor.dtype).removeprefix('torch.')} and should be float32"
            for name, tensor in fitting.items()
            if name in parameters and tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16)
        ],
    }
    if not any(faults.values()):
        with torch.no_grad():
            for name in filter(parameters.__contains__, weights):
                parameters[name].copy_(weights[name])
        if len(fitting) > len(given):
            faults["different from what they are tied to or computed as"] = [
                name for name, tensor in fitting.items() if not torch.equal(known[name], tensor.to(known[name]))
            ]
    if any(faults.values()):
        reasons = "; ".join(f"{fault}: {_list(names)}" for fault, names in faults.items() if names)
        raise type(error)(f"{error}: its weights are not those of its configuration: {reasons}")


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def save_model(predictor: Predictor, folder: Path) -> Path:
    """Write a finished run; refused if a run cannot hold the network, or if the folder holds something else."""
    own = predictor.folder is not None and predictor.folder.resolve() == folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not own:
            raise RunError(f"{folder}: is not empty; choose a new folder")
        if (folder / "log.jsonl").exists() or not (folder / "manifest.json").exists():
            raise RunError(
                f"{folder}: the model was loaded from here, and the folder holds more than a model; choose a new folder"
            )
    config, labels, network = predictor.config, predictor.labels, predictor.peek()
    with torch.random.fork_rng(devices=[]):
        expected = _describe(config.build(predictor.tokenizer, labels))
    found = _describe(network)
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise RunError(
                f"{folder}: nothing was saved, because the network is not what its configuration builds: {name} is "
                f"{found.get(name, 'missing')}, and its configuration says {expected.get(name, 'nothing')}"
            )
    run, before = TrainingRun(folder), predictor.folder
    try:
        run.data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error}; choose another folder") from None
    predictor.tokenizer.save(folder / "tokenizer.json")
    run.finish(network, config, labels, describe_machine() | {"precision": "float32"}, predictor.seen)
    if before is not None and not own:
        run.note_base(find_base(find_run(before)))
    predictor.folder = folder
    return folder


def _describe(network: nn.Module) -> dict[str, object]:
    """Everything about a network except its weights: classes, options, hooks, shapes and buffers."""
    facts: dict[str, object] = {}
    for name, module in network.named_modules():
        facts[name or "the network"] = type(module).__name__
        for key, value in vars(module).items():
            plain = isinstance(value, bool | int | float | str | range | tuple | None)
            facts[f"{name}.{key}"] = value if plain else len(value) if key in HOOKS else type(value).__name__
        facts.pop(f"{name}.training")
    for name, parameter in network.named_parameters():
        facts[name] = f"{str(parameter.dtype).removeprefix('torch.')} {tuple(parameter.shape)}"
    return facts | {name: buffer.tolist() for name, buffer in network.named_buffers()}
