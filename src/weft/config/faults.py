"""Pydantic's complaints, as sentences with a dotted key, a line number and the nearest right name."""

import difflib
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

Location = Sequence[int | str]


def describe(error: ErrorDetails, root: type[BaseModel], data: dict[str, Any], source: str) -> str:
    """One fault as `line N: dotted.key: what is wrong; what was expected`."""
    key = dotted_key(error["loc"], data)
    line = line_of(source, key)
    where = f"line {line}: {key}" if line else key or "(top level)"
    return f"{where}: {_sentence(error, root)}"


def dotted_key(location: Location, data: Any) -> str:
    """The path as the user wrote it: pydantic adds the chosen member of a union, which stands in no file."""
    parts: list[str] = []
    for index, step in enumerate(location):
        last = index == len(location) - 1
        if isinstance(step, int):
            parts[-1:] = [f"{parts[-1]}[{step}]"] if parts else [f"[{step}]"]
        elif isinstance(data, dict) and (step in data or (last and step not in data.values())):
            parts.append(step)
        else:
            continue
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            data = None
    return ".".join(parts)


def line_of(source: str, key: str) -> int | None:
    """The line of a TOML text that sets `key`, or the table it stands in; None when neither is in the text."""
    wanted = re.sub(r"\[\d+\]", "", key)
    table, found = "", None
    for number, line in enumerate(source.splitlines(), start=1):
        text = line.strip()
        if header := re.match(r"\[+\s*([^\]]+?)\s*\]+", text):
            table = header.group(1)
            if table == wanted or (found is None and wanted.startswith(table + ".")):
                found = number
        elif assignment := re.match(r"([\w.\-]+)\s*=", text):
            full = f"{table}.{assignment.group(1)}" if table else assignment.group(1)
            if full == wanted:
                return number
            if wanted.startswith(full + "."):
                found = number
    return found


def _sentence(error: ErrorDetails, root: type[BaseModel]) -> str:
    value = error.get("input")
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return _unknown_name(root, error["loc"])
        case "missing":
            return "is missing; it has no default"
        case "union_tag_not_found":
            return f"says no {context['discriminator']}; expected one of {context.get('expected_tags', 'its kinds')}"
        case "union_tag_invalid":
            tags = re.findall(r"'([^']*)'", str(context["expected_tags"]))
            return f"{_quote(context['tag'])} is not one of {_list(tags)}{_nearest(context['tag'], tags)}"
        case "literal_error":
            choices = re.findall(r"'([^']*)'", str(context["expected"]))
            return f"{_quote(value)} is not one of {_list(choices)}{_nearest(value, choices)}"
        case "value_error":
            return str(context["error"])
        case _:
            message = error["msg"].removeprefix("Input should be ").replace("a valid ", "a ")
            return f"expected {message}, not {_quote(value)}"


def _unknown_name(root: type[BaseModel], location: Location) -> str:
    name = str(location[-1])
    members, chosen = _members_at(root, location[:-1])
    if chosen is None:
        return "is not a known key"
    for other in members:
        if name in other.model_fields and other is not chosen:
            return f"belongs to {_tag(other)}, but this is {_tag(chosen)}; remove it or change the other"
    names = sorted(chosen.model_fields)
    return f"is not a known key{_nearest(name, names)}; known here: {', '.join(names)}"


def _members_at(root: type[BaseModel], location: Location) -> tuple[list[type[BaseModel]], type[BaseModel] | None]:
    """The models that may stand at a location and the one that was chosen by its tag."""
    members: list[type[BaseModel]] = [root]
    chosen: type[BaseModel] | None = root
    for step in location:
        if chosen is not None and isinstance(step, str) and step in chosen.model_fields:
            members = _models(chosen.model_fields[step].annotation)
            chosen = members[0] if len(members) == 1 else None
        elif isinstance(step, str):
            chosen = next((m for m in members if step in _tag_values(m)), None)
    return members, chosen


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The section classes inside an annotation such as `tuple[A | B, ...] | None`."""
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        return [annotation]
    if hasattr(annotation, "__value__"):
        return _models(annotation.__value__)
    return [model for argument in get_args(annotation) for model in _models(argument)]


def _tag_field(model: type[BaseModel]) -> tuple[str, tuple[str, ...]] | None:
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is Literal:
            return name, tuple(str(v) for v in get_args(field.annotation))
    return None


def _tag_values(model: type[BaseModel]) -> tuple[str, ...]:
    tag = _tag_field(model)
    return tag[1] if tag else ()


def _tag(model: type[BaseModel]) -> str:
    tag = _tag_field(model)
    return f"{tag[0]} = {_list(tag[1])}" if tag else model.__name__


def _nearest(value: Any, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(value), names, n=1, cutoff=0.6)
    return f"; did you mean {_quote(close[0])}?" if close else ""


def _quote(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _list(names: Sequence[str]) -> str:
    return ", ".join(_quote(n) for n in names)
