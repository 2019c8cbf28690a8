"""Pydantic's errors as sentences, with a dotted key, a line number and the most similar valid name."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from seqloom.config.base import CHOOSERS
from seqloom.errors import ConfigError

Location = Sequence[int | str]

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "sequence_str": "a list of strings",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


def describe(error: ErrorDetails, root: type[BaseModel], source: str, overrides: Sequence[str] = ()) -> str:
    """Describe one fault as `line N: dotted.key: what is wrong; what was expected`.

    A key of `overrides`, or one below it, did not come from the file, so it has no line.
    """
    place = locate(root, error["loc"])
    key, sentence = place.key, _sentence(error, place)
    if error["type"] == "union_tag_invalid" and (tag := _tag_field(place.members[0])) != "kind":  # a word may be one
        key = f"{key}.{tag}"
    elif isinstance(error.get("ctx", {}).get("error"), ConfigError):  # it names the key itself
        key, _, sentence = sentence.partition(": ")
    if any(f"{key}.".startswith(f"{one}.") for one in overrides):
        return f"given beside the file: {key}: {sentence}"
    below = [one for one in overrides if not key or one.startswith(f"{key}.")]
    line = line_of(source, key)
    where = f"line {line}: {key}: " if line else f"{key}: " if key else ""
    return f"{where}{sentence}" + (f" (given beside the file: {', '.join(below)})" if below else "")


@dataclass(frozen=True)
class Place:
    """A location in a configuration: its dotted key, the sections allowed there, and the chosen one."""

    key: str
    members: list[type[BaseModel]]
    chosen: type[BaseModel] | None
    parent: "Place | None"


def locate(root: type[BaseModel], location: Location) -> Place:
    """Follow pydantic's location, without the names of union members, which are not in the file."""
    place = Place("", [root], root, None)
    for step in location:
        if isinstance(step, int):
            place = replace(place, key=f"{place.key}[{step}]")
        elif len(place.members) > 1 and place.chosen is None:
            place = replace(place, chosen=next((m for m in place.members if step in _tags(m)), None))
        else:
            fields = place.chosen.model_fields if place.chosen is not None else {}
            members = section_models(fields[step].annotation) if step in fields else []
            key = f"{place.key}.{step}" if place.key else step
            place = Place(key, members, members[0] if len(members) == 1 else None, place)
    return place


def line_of(source: str, key: str) -> int | None:
    """The line of a TOML text that sets `key`, or that of its table; None if neither is in the text."""
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


def _sentence(error: ErrorDetails, place: Place) -> str:
    value = error.get("input")
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return _unknown_name(place)
        case "missing":
            return "is missing; it has no default"
        case "union_tag_not_found":
            return f"expected a table, or one of {_list(_tags(*place.members))}, not {_quote(value)}"
        case "union_tag_invalid":
            tags = _tags(*place.members)
            return f"{_quote(context['tag'])} is not one of {_list(tags)}{suggest(context['tag'], tags)}"
        case "literal_error":
            choices = re.findall(r"'([^']*)'", str(context["expected"]))
            return f"{_quote(value)} is not one of {_list(choices)}{suggest(value, choices)}"
        case "value_error":
            return str(context["error"])
        case _:
            return describe_value(error)


def describe_value(error: ErrorDetails) -> str:
    """Say what was expected instead of a value."""
    expected = _EXPECTED.get(error["type"], error["msg"].removeprefix("Input should be "))
    return f"expected {expected}, not {_quote(error.get('input'))}"


def _unknown_name(place: Place) -> str:
    name, parent = place.key.rsplit(".", 1)[-1], place.parent
    if parent is None or parent.chosen is None:
        return "is not a known key"
    for other in parent.members:
        if name in other.model_fields and other is not parent.chosen:
            return f"belongs to {_tag(other)}, but this is {_tag(parent.chosen)}; remove it or change the other"
    names = sorted(parent.chosen.model_fields)
    return f"is not a known key{suggest(name, names)}; known here: {', '.join(names)}"


def section_models(annotation: Any) -> list[type[BaseModel]]:
    """The section classes in an annotation such as `tuple[A | B, ...] | None`."""
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        return [annotation]
    if hasattr(annotation, "__value__"):
        return section_models(annotation.__value__)
    return [model for argument in get_args(annotation) for model in section_models(argument)]


def _tag_field(model: type[BaseModel]) -> str | None:
    return next((name for name in CHOOSERS if name in model.model_fields), None)


def _tags(*models: type[BaseModel]) -> list[str]:
    """The values of the key that chooses each of these sections."""
    tagged = [model.model_fields[field].annotation for model in models if (field := _tag_field(model))]
    return [str(value) for annotation in tagged for value in get_args(annotation)]


def _tag(model: type[BaseModel]) -> str:
    field = _tag_field(model)
    return f"{field} = {_list(_tags(model))}" if field else model.__name__


def suggest(value: Any, names: Sequence[str]) -> str:
    """Suggest the most similar name, as the end of a sentence."""
    close = difflib.get_close_matches(str(value), names, n=1, cutoff=0.6)
    return f"; did you mean {_quote(close[0])}?" if close else ""


def _quote(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _list(names: Sequence[str]) -> str:
    return ", ".join(_quote(n) for n in names)
