"""A commented configuration file for a task, made from the sections themselves: it cannot fall behind them."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from weft.config.faults import section_models
from weft.config.tasks import TASKS
from weft.config.union import CHOOSERS


def render(task: str) -> str:
    """A file that validates as it is; every key that has a default may be left out."""
    root = TASKS[task]
    opening = (root.__doc__ or "").strip()
    lines = [f"# {opening}", "# Every key has a comment above it. Keys behind a # are shown at their default.", ""]
    return "\n".join([*lines, *_table(root, "", set(root.model_fields))]).rstrip() + "\n"


def _table(model: type[BaseModel], path: str, live: set[str]) -> Iterator[str]:
    """The word that chooses, the live keys, the others, and then the sub-tables: TOML wants them last."""
    fields = model.model_fields
    tables = {name: field for name, field in fields.items() if _section(field) is not None and not _is_word(field)}
    keys = {name: field for name, field in fields.items() if name not in tables}
    first = [name for name in keys if name in CHOOSERS]
    rest = sorted((name for name in keys if name not in first), key=lambda name: name not in live)
    for name in first + rest:
        yield from _key(name, keys[name], live=name in live)
    for name, field in tables.items():
        section = _section(field)
        assert section is not None
        here = f"{path}.{name}" if path else name
        yield ""
        yield from _comment(field.description)
        yield f"[{here}]"
        # A decoder beside an encoder takes what it does not say from there: nothing of it needs to be live.
        follows = name == "decoder" and "encoder" in fields
        yield from _table(type(section), here, set() if follows else _shared_names(field))


def _key(name: str, field: FieldInfo, *, live: bool) -> Iterator[str]:
    yield from _comment(field.description)
    value = _example(field)
    if isinstance(value, BaseModel):  # a section that may be written as one word
        value = value.model_dump()["kind"]
    required = field.is_required()
    yield (
        f"{name} = {_toml(value)}" if required or (live and field.default is not None) else f"# {name} = {_toml(value)}"
    )


def _section(field: FieldInfo) -> BaseModel | None:
    value = _example(field)
    return value if isinstance(value, BaseModel) else None


def _example(field: FieldInfo) -> Any:
    if field.examples:
        return field.examples[0]
    default = field.get_default(call_default_factory=True)
    return None if default is PydanticUndefined else default


def _is_word(field: FieldInfo) -> bool:
    return all("kind" in model.model_fields for model in section_models(field.annotation))


def _shared_names(field: FieldInfo) -> set[str]:
    """The keys that every member of a union has: those stay when the word that chooses is changed."""
    members = section_models(field.annotation)
    return set.intersection(*(set(member.model_fields) for member in members))


def _comment(text: str | None) -> Iterator[str]:
    yield from (f"# {line.strip()}" for line in (text or "").splitlines())


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
