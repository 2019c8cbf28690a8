"""What sentence-transformers keeps beside a model: how the states of a text become its vector.

modules.json lists the steps: a Transformer, a Pooling (with a config of its own), perhaps a Normalize.
"""

import json
from pathlib import Path
from typing import Any

from seqloom.errors import DataError
from seqloom.hub.huggingface.files import read_json
from seqloom.tasks.model import TextVector

_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_cls_token": "first",
}


def read_vector(folder: Path) -> dict[str, Any]:
    """The `embed` section of a model; empty where nothing is said."""
    path = folder / "modules.json"
    if not path.is_file():
        return {}
    try:
        steps = json.loads(path.read_bytes()[: 1 << 20])
        kinds = [(str(step["type"]).rpartition(".")[2], str(step["path"])) for step in steps]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{path}: is not the list of modules that sentence-transformers writes") from None
    vector: dict[str, Any] = {}
    for kind, where in kinds:
        match kind:
            case "Transformer":
                pass
            case "Pooling" if Path(where).name == where:
                vector["pooling"] = _read_pooling(folder / where / "config.json")
            case "Normalize":
                vector["normalise"] = True
            case _:
                raise DataError(f'{path}: a step of kind "{kind[:40]}" is not supported')
    return vector


def write_vector(folder: Path, vector: TextVector, dim: int) -> None:
    """The same list for a model of ours."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if vector.normalise else [])]
    places = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    steps = [
        {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(steps, indent=2) + "\n", encoding="utf-8")
    said = {"word_embedding_dimension": dim} | {key: kind == vector.pooling for key, kind in _POOLINGS.items()}
    for place in places[1:]:
        (folder / place).mkdir()
    (folder / places[1] / "config.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def _read_pooling(path: Path) -> str:
    said = read_json(path)
    chosen = [key for key, value in said.items() if key.startswith("pooling_mode_") and value is True]
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise DataError(
            f"{path}: {', '.join(chosen) or 'no pooling'} is not supported; one of {', '.join(_POOLINGS)} is"
        )
    return _POOLINGS[chosen[0]]
