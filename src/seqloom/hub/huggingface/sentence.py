"""What sentence-transformers stores beside an encoder: how the states of a text become one vector.

modules.json lists the steps: a Transformer, a Pooling with a configuration of its own, and perhaps a Normalize.
"""

import json
from pathlib import Path
from typing import Any

from seqloom.errors import DataError
from seqloom.hub.huggingface.files import read_json
from seqloom.hub.huggingface.settings import Settings
from seqloom.tasks.model import TextVector
from seqloom.text import Tokenizer

_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_cls_token": "first",
}


def read_pooling(folder: Path) -> dict[str, Any]:
    """The `embed` section of a model; empty where there is no modules.json."""
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
                vector["pooling"] = _read_mode(folder / where / "config.json")
            case "Normalize":
                vector["normalise"] = True
            case _:
                raise DataError(f'{path}: a step of kind "{kind[:40]}" is not supported')
    return vector


def _read_mode(path: Path) -> str:
    chosen = [key for key, value in read_json(path).items() if key.startswith("pooling_mode_") and value is True]
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        found = ", ".join(chosen) or "no pooling"
        raise DataError(f"{path}: {found} is not supported; one of {', '.join(_POOLINGS)} is")
    return _POOLINGS[chosen[0]]


def read_max_length(folder: Path, tokenizer: Tokenizer, rows: int) -> int:
    """How many tokens an encoder with `rows` positions reads at once; what is done to its texts first is refused."""
    path, prompts = folder / "sentence_bert_config.json", folder / "config_sentence_transformers.json"
    if (folder / "modules.json").is_file() and prompts.is_file():
        name = Settings(prompts, read_json(prompts)).get("default_prompt_name")
        if name is not None:
            raise DataError(f"{prompts}: default_prompt_name: a text before each text ({name!r}) is not supported")
    if not path.is_file():
        return rows
    settings, normaliser = Settings(path, read_json(path)), tokenizer.plain.normalizer
    lower = normaliser is not None and "A" not in normaliser.normalize_str("A")
    if settings.flag("do_lower_case", False) and not lower:
        raise settings.refusal("do_lower_case", "only a tokeniser that itself writes texts in lower case is supported")
    return min(rows, settings.count("max_seq_length", rows))


def describe_pooling(vector: TextVector, dim: int) -> dict[str, Any]:
    """The files for a model of ours: JSON content by path, and None for an empty folder."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if vector.normalise else [])]
    places = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    steps = [
        {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]
    mode = {"word_embedding_dimension": dim} | {key: kind == vector.pooling for key, kind in _POOLINGS.items()}
    return {"modules.json": steps, f"{places[1]}/config.json": mode, **dict.fromkeys(places[2:])}
