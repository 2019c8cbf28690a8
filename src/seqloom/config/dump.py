"""TOML from Python: the whole configuration, which a run keeps, and changes to one that are given as a dict."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from seqloom.errors import ConfigError

Overrides = Sequence[str] | Mapping[str, Any]
"""Changes to a configuration: `"section.key=value"`, or a dict of keys, dotted or nested, and their values."""


def dump(config: BaseModel) -> str:
    """TOML that loads as the same configuration."""
    return "\n".join(write_table(config.model_dump(exclude_none=True), ())).strip() + "\n"


def write_table(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table: plain keys first, then sub-tables, as TOML wants them."""
    inner = {name: value for name, value in values.items() if _is_table(value)}
    for name, value in values.items():
        if name not in inner and value != ():
            yield f"{name} = {write_value(value)}"
    for name, value in inner.items():
        here = (*path, name)
        for table in value if isinstance(value, tuple) else (value,):
            yield ""
            yield f"[[{'.'.join(here)}]]" if isinstance(value, tuple) else f"[{'.'.join(here)}]"
            yield from write_table(table, here)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, tuple) and bool(value) and isinstance(value[0], dict))


def write_value(value: Any) -> str:
    """A value as TOML writes it."""
    match value:
        case list() | tuple():
            return "[" + ", ".join(map(write_value, value)) + "]"
        case Mapping():  # inside a list, where it cannot be a table of its own
            return "{" + ", ".join(f"{json.dumps(key)} = {write_value(item)}" for key, item in value.items()) + "}"
        case Path():
            return write_value(str(value))
        case _:  # TOML is like JSON here, but for one more character that must be escaped
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def spell_overrides(overrides: Overrides, sections: Mapping[str, Any]) -> tuple[str, ...]:
    """Overrides as they are written on the command line: `section.key=value`. A dict changes single keys of a table."""
    if isinstance(overrides, str):
        raise ConfigError(f'overrides: give a list, ["{overrides}"], or a dict')
    given = _flatten(overrides, "") if isinstance(overrides, Mapping) else overrides
    return (*given, *_flatten(sections, ""))


def _flatten(values: Mapping[str, Any], before: str) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{before}{key}.")
            continue
        try:
            if value is None:
                raise TypeError("None")
            yield f"{before}{key}={write_value(value)}"
        except TypeError:
            raise ConfigError(f"{before}{key}: {value!r} is not a value that TOML has") from None
