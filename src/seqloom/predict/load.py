"""A finished run, opened to be used."""

import json
from hashlib import file_digest, sha256
from pathlib import Path

from seqloom.errors import RunError
from seqloom.hub.bundle import Bundle
from seqloom.hub.ctranslate2 import Numbers
from seqloom.hub.load import is_published, load_published
from seqloom.predict.ctranslate2 import FollowingEngine, open_engine
from seqloom.predict.model import Model
from seqloom.predict.search import EngineName
from seqloom.runs.checkpoint import load_tensors, verify_folder
from seqloom.runs.machine import Device, choose_device
from seqloom.runs.run import Run
from seqloom.tasks import Task
from seqloom.tasks.configuration import load_resolved
from seqloom.text import Tokenizer


def load(run: str | Path | Run, *, engine: EngineName = "compiled", device: Device = "cpu") -> Model:
    """The model of a finished run, or of a folder of published weights.

    `engine` is what computes, `device` where: "cpu", "cuda", "mps", or "auto" for the best one there is.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    found = _open(folder)
    found.network.to(choose_device(device, key="device"))
    model = Model(
        found.config, found.tokenizer, found.labels, found.network, folder, private=True, compiled=engine != "open"
    )
    if engine in ("ctranslate2", "ctranslate2-int8"):
        numbers: Numbers = "int8" if engine == "ctranslate2-int8" else "float32"
        model.engine = FollowingEngine(model, numbers, open_engine(found, folder, numbers))
    return model


def identify(folder: Path) -> str:
    """A hash of the model: of its manifest, which vouches for the rest, or of all the files of somebody else's."""
    manifest, whole = folder / "manifest.json", sha256()
    for path in [manifest] if manifest.exists() else sorted(path for path in folder.iterdir() if path.is_file()):
        with path.open("rb") as file:
            whole.update(file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _open(folder: Path) -> Bundle:
    if is_published(folder):
        return load_published(folder)
    if not (folder / "manifest.json").exists():
        known = (folder / "config.toml").exists()
        there = f"there is no run here; `seqloom train CONFIG --out {folder}` makes one, `seqloom import` brings one in"
        advice = "its training is not finished; `seqloom train` goes on with it" if known else there
        raise RunError(f"{folder}: {advice}")
    verify_folder(folder)
    config = load_resolved(folder / "config.toml")
    if not isinstance(config, Task):
        raise RunError(
            f"{folder} holds word vectors; ask them with `seqloom vectors nearest {folder}/vectors.bin WORD`"
        )
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    labels = tuple(json.loads((folder / "labels.json").read_bytes()))
    network = config.build(tokenizer.vocab_size, labels)
    weights = load_tensors(folder / "model.safetensors")
    parameters = dict(network.named_parameters())
    if parameters.keys() != weights.keys():
        raise RunError(f"{folder}: its weights are not those of its configuration")
    network.load_state_dict(weights, strict=False)  # tied weights are named once, buffers are computed
    return Bundle(config, tokenizer, labels, network)
