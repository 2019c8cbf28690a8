"""A configuration as TOML with every default written out: what a run keeps, so that it can be read and run again."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel


def dump(config: BaseModel) -> str:
    """TOML that loads as the same configuration."""
    return "\n".join(write_table(config.model_dump(exclude_none=True), ())).strip() + "\n"


def write_table(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table: plain keys first, then sub-tables, as TOML wants them."""
    inner = {name: value for name, value in values.items() if _is_table(value)}
    for name, value in values.items():
        if name not in inner and value != ():
            yield f"{name} = {_value(value)}"
    for name, value in inner.items():
        here = (*path, name)
        for table in value if isinstance(value, tuple) else (value,):
            yield ""
            yield f"[[{'.'.join(here)}]]" if isinstance(value, tuple) else f"[{'.'.join(here)}]"
            yield from write_table(table, here)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, tuple) and bool(value) and isinstance(value[0], dict))


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
