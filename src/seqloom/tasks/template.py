"""A commented configuration file for a task, made from the sections themselves: it cannot fall behind them."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from seqloom.config.base import CHOOSERS
from seqloom.config.batches import Frame
from seqloom.config.recipes import Recipe
from seqloom.tasks import TASKS, Task
from seqloom.tasks.configuration import validate


def render(task: str, recipe: Recipe | None = None) -> str:
    """A file that validates as it is; a key behind a # shows its default or, where it has none, an example."""
    train = TASKS[task].example_files
    files = {"train": train}
    if issubclass(TASKS[task], Task):
        files["valid"] = {key: name.replace("train", "valid") for key, name in train.items()}
    recipe_keys = {} if recipe is None else recipe.read()
    example = validate({"data": files, **copy.deepcopy(recipe_keys)}, TASKS[task], "", "template")
    opening = (TASKS[task].__doc__ or "").strip() if recipe is None else f"A recipe for {task}: {recipe.about}."
    lines = [
        f"# {opening}",
        "# What a key means stands above it. A key behind a # shows its default, or an example if absent means none.",
        "# The width, depth and dropout of a model that are not given follow `size`.",
        "",
    ]
    return "\n".join([*lines, *_table(example, "", {"task"}, recipe_keys)]).rstrip() + "\n"


def _table(section: BaseModel, path: str, live: set[str], recipe_keys: dict[str, Any]) -> Iterator[str]:
    """The word that chooses, the live keys, the others, and then the sub-tables: TOML wants them last.

    Keys of a recipe are live, too, with its values.
    """
    fields = type(section).model_fields
    tables = {name: inner for name in fields if (inner := _section(section, name)) is not None}
    live = live | recipe_keys.keys()
    keys = [name for name in fields if name not in tables and (getattr(section, name) != () or name in recipe_keys)]
    keys.sort(key=lambda name: (name not in CHOOSERS, name not in live))
    for name in keys:
        if name in recipe_keys:
            yield from _comment(fields[name].description)
            yield f"{name} = {_toml(recipe_keys[name])}"
        else:
            yield from _key(section, name, live=name in live)
    for name, inner in sorted(tables.items(), key=lambda item: not item[1].model_fields_set):
        here = f"{path}.{name}" if path else name
        yield ""
        yield from _comment(fields[name].description)
        yield f"[{here}]"
        # A decoder beside an encoder takes what it does not say from there: nothing of it needs to be live. Otherwise
        # only the family is: how large a stack is, its size decides.
        leads = name == "encoder" or (name == "decoder" and "encoder" not in fields)
        given = {"family"} if leads else set() if name == "decoder" or name in recipe_keys else inner.model_fields_set
        yield from _table(inner, here, given, recipe_keys.get(name, {}))


def _section(section: BaseModel, name: str) -> BaseModel | None:
    """The sub-table under a key; None for a plain value, or a section that a word or a line stands for."""
    value = getattr(section, name)
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        return value[0]
    short = isinstance(value, Frame) or not isinstance(value, BaseModel) or "kind" in type(value).model_fields
    return None if short else value


def _key(section: BaseModel, name: str, *, live: bool) -> Iterator[str]:
    field = type(section).model_fields[name]
    value = getattr(section, name)
    if value is None:
        value, live = (field.examples or [None])[0], False
    if value is None:  # nothing that could be written down
        return
    yield from _comment(field.description)
    if isinstance(value, Frame):
        value = {side: roles for side, roles in value if roles}
    elif isinstance(value, BaseModel):
        value = value.model_dump()["kind"]
    yield f"{'' if live else '# '}{name} = {_toml(value)}"


def _comment(text: str | None) -> Iterator[str]:
    yield from (f"# {line.strip()}" for line in (text or "").splitlines())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, tuple):
        return _toml(value[0]) if len(value) == 1 else "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
