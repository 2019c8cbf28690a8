"""The settings of a configuration one by one: what each means, and whether a user chose it.

A setting is usual if it is what a configuration that says nothing about it would have: the default of its section, or
what the size of the model decides.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from seqloom.config.base import CHOOSERS
from seqloom.config.dump import write_value
from seqloom.config.sizes import PRESETS, fill_size


@dataclass(frozen=True)
class Setting:
    """One key of a configuration."""

    key: str
    """With dots: `train.optimizer.learning_rate`."""
    value: str
    """As TOML writes it; empty for none."""
    usual: bool
    """Whether it would be so if nobody had said so."""
    about: str
    """What the key means."""


def list_settings(config: BaseModel) -> list[Setting]:
    """Every setting, in the order of the sections."""
    sized = _list_sized(config)
    found = []
    for key, value, usual, field in _walk(config, None, ""):
        about = " ".join((field.description or "").split())
        found.append(Setting(key, "" if value is None else write_value(value), value == sized.get(key, usual), about))
    return found


def _walk(section: BaseModel, usual: Any, before: str) -> Iterator[tuple[str, Any, Any, FieldInfo]]:
    """Each key with its value, its usual value and its field; `usual` is the section that would be here otherwise."""
    for name, field in type(section).model_fields.items():
        value, default = getattr(section, name), _find_default(section, usual, name, field)
        if isinstance(value, BaseModel):
            yield from _walk(value, default, f"{before}{name}.")
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for number, part in enumerate(value):
                place = f"[{number}]" if len(value) > 1 else ""
                yield from _walk(part, None, f"{before}{name}{place}.")
        else:
            yield f"{before}{name}", value, default, field


def _find_default(section: BaseModel, usual: Any, name: str, field: FieldInfo) -> Any:
    if name in CHOOSERS and isinstance(usual, BaseModel):  # the default of a section's kind is the section's own kind
        return getattr(usual, name, None)
    if type(usual) is type(section):
        return getattr(usual, name)
    default = field.get_default(call_default_factory=True, validated_data={})
    return None if default is PydanticUndefined else default


def _list_sized(config: BaseModel) -> dict[str, Any]:
    """What the size decides, by key, given what it follows: the encoder, and the kinds of tokeniser and optimizer."""
    size, model = getattr(config, "size", None), getattr(config, "model", None)
    if size not in PRESETS or not isinstance(model, BaseModel):
        return {}
    stacks = {"encoder", "decoder"} & set(type(model).model_fields)
    start: dict[str, Any] = {} if getattr(config, "init", None) is None else {"init": ""}
    encoder, train = getattr(model, "encoder", None), getattr(config, "train", None)
    given: dict[str, Any] = {
        "tokenizer": {"kind": getattr(getattr(config, "tokenizer", None), "kind", "bpe")},
        "train": {"optimizer": {"kind": getattr(getattr(train, "optimizer", None), "kind", "muon")}},
    }
    if encoder is not None:
        given["model"] = {"encoder": {key: getattr(encoder, key) for key in ("model_dim", "num_layers", "dropout")}}
    alone, following = start, {**start, **copy.deepcopy(given)}
    for table in (alone, following):
        fill_size(table, size, stacks)
    usual, asked = dict(_flatten(alone, "")), dict(_flatten(given, ""))
    follows = {key: value for key, value in _flatten(following, "") if key not in asked}
    return follows | {key: usual[key] for key in asked if key in usual}


def _flatten(table: dict[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
