"""A commented configuration file for a task, made from the sections themselves: it cannot fall behind them."""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from seqloom.config.base import CHOOSERS
from seqloom.config.batches import Frame
from seqloom.config.recipes import Recipe
from seqloom.tasks import TASKS, Task
from seqloom.tasks.configuration import resolve

_SIZE = "small"


def render(task: str, recipe: Recipe | None = None, *, full: bool = False) -> str:
    """A file that validates as it is: the keys that every file needs, and those of a recipe.

    With `full`, all other keys are there as well, behind a #.
    """
    chosen = TASKS[task]
    trained = issubclass(chosen, Task)
    live: dict[str, Any] = {"task": task, "data": _name_files(chosen.example_files, trained=trained)}
    _merge(live, {} if recipe is None else recipe.read())
    # What `size` decides is shown as it is for one of the sizes.
    example = resolve(copy.deepcopy(live) | ({"size": _SIZE} if trained else {}))
    if trained:
        stacks = ("encoder", "decoder") if recipe is None else ()
        leader = next((name for name in stacks if hasattr(example.model, name)), None)  # type: ignore[attr-defined]
        _merge(live, {} if leader is None else {"model": {leader: {"family": "transformer"}}})
    opening = (chosen.__doc__ or "").strip() if recipe is None else f"A recipe for {task}: {recipe.about}."
    named = task if recipe is None else f"{task} --recipe {recipe.name}"
    if full:
        head = [
            "What a key means stands above it. A key behind a # shows its default: without the # it changes nothing.",
            "A key marked as an example has no default.",
            *([f'Where `size` decides, the default is that of "{_SIZE}".'] if trained else []),
        ]
    else:
        head = [f"Every key, what it means and its default: seqloom new {named} --full"]
    lines = [*(f"# {line}" for line in (opening, *head)), "", *_table(example, "", live, full=full)]
    if trained and not full and "train" not in live:
        lines += [
            "",
            "# How long: minutes, epochs, steps or tokens; 10 epochs (1,000 steps at least) if none is given.",
        ]
        lines += ["[train]", "# minutes = 10.0"]
    return "\n".join(lines) + "\n"


def _name_files(train: dict[str, Any], *, trained: bool) -> dict[str, Any]:
    """The files of each split; word vectors have only one."""
    splits = ("train", "valid", "test") if trained else ("train",)
    return {
        split: {key: name.replace("train", split) if key != "format" else name for key, name in train.items()}
        for split in splits
    }


def _merge(into: dict[str, Any], given: Mapping[str, Any]) -> None:
    for key, value in given.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def _table(section: BaseModel, path: str, live: Mapping[str, Any], *, full: bool) -> Iterator[str]:
    """The word that chooses, the live keys, the others, and then the sub-tables: TOML wants them last."""
    fields = type(section).model_fields
    tables = {name: inner for name in fields if (inner := _find_table(section, name)) is not None}
    keys = [name for name in fields if name not in tables and (full or name in live)]
    for name in sorted(keys, key=lambda name: (name not in CHOOSERS, name not in live)):
        yield from _key(section, name, live, full=full)
    for name, inner in sorted(tables.items(), key=lambda item: (item[0] not in live, item[0] == "decoder")):
        if full or name in live:
            here = f"{path}.{name}" if path else name
            lines = list(_table(inner, here, live.get(name, {}), full=full))
            if full or lines[0]:  # otherwise it has nothing but tables
                yield from ("", *_comment(fields[name].description), f"[{here}]")
            yield from lines


def _find_table(section: BaseModel, name: str) -> BaseModel | None:
    """The sub-table under a key; None for a plain value, and for a section that is written in its parent."""
    value = getattr(section, name)
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        return value[0]
    return value if isinstance(value, BaseModel) and not isinstance(value, Frame) and not _is_kind(value) else None


def _is_kind(value: Any) -> bool:
    """Whether a word may stand for a section: `tokenizer = "bpe"`."""
    return isinstance(value, BaseModel) and "kind" in type(value).model_fields


def _key(
    section: BaseModel, name: str, live: Mapping[str, Any], *, full: bool, path: str = "", about: str | None = None
) -> Iterator[str]:
    """A key under what it means. A section that a word may stand for has dotted keys: each can be given by itself."""
    field, value, mark = type(section).model_fields[name], getattr(section, name), ""
    about = about or field.description
    given = live.get(name)
    if _is_kind(value) and (full or isinstance(given, dict)):
        given = {"kind": given} if isinstance(given, str) else given or {}
        for key in sorted(type(value).model_fields, key=lambda key: key not in CHOOSERS):
            if full or key in given:
                inner = about if key == "kind" else None
                yield from _key(value, key, given, full=full, path=f"{path}{name}.", about=inner)
        return
    if name in live:
        value = given
    elif name == "size" and path == "":
        value = field.default
    elif value is None:
        value, mark = _find_example(section, name), "  # an example"
    if value is not None:  # otherwise no person would write it
        if full:
            yield from _comment(about)
        yield f"{'' if name in live else '# '}{path}{name} = {_toml(value)}{mark}"


def _find_example(section: BaseModel, name: str) -> Any:
    """An example of a key that has no default; None where the other keys of its section do not allow one."""
    example = (type(section).model_fields[name].examples or [None])[0]
    try:
        type(section).model_validate({**section.model_dump(exclude_none=True), name: example})
    except ValidationError:
        return None
    return example


def _comment(text: str | None) -> Iterator[str]:
    yield from (f"# {line.strip()}" for line in (text or "").splitlines())


def _toml(value: Any) -> str:
    if isinstance(value, Frame):
        value = {side: roles for side, roles in value if roles}
    elif isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, tuple) and len(value) == 1:
        return _toml(value[0])
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
