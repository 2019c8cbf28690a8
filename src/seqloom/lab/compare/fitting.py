"""Another family with the keys of a configuration: what fits is taken over, the rest falls back to defaults.

A configuration that was written for a Transformer may say `num_heads = 8`, which a recurrent encoder does not have, or
`positions = "rotary"`, which a convolution cannot use. Where an axis of the grid changes the word that chooses a
section (`family`, `kind`), such keys are left out for the cells that do not have them, and every one is named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from seqloom.config.base import CHOOSERS, as_kind
from seqloom.config.dump import write_value
from seqloom.config.faults import locate
from seqloom.tasks.configuration import apply_override

Table = dict[str, Any]


@dataclass
class Fitted:
    """The changes to a configuration that make a cell."""

    overrides: list[str]
    left_out: list[str] = field(default_factory=list)
    """Sentences about keys that the cell does not have."""


def fit(root: type[BaseModel], written: Table, changes: Sequence[str]) -> Fitted:
    """Apply the changes of a cell to a configuration as it is written, and leave out what does not fit.

    `written` is altered. The overrides that come back turn the configuration file into that cell.
    """
    opened = [path for change in changes for path in _open_words(written, change.partition("=")[0].strip().split("."))]
    keys = [apply_override(written, change) for change in changes]
    fitted, tables = Fitted([]), dict.fromkeys(opened)
    for path in _list_choices(written, keys):
        table, tag = _find(written, path), _find_tag(written, path)
        members = locate(root, path).members
        member = next((one for one in members if tag in _list_tags(one)), None)
        if table is None or member is None:
            continue  # validation says what is wrong with it
        own = {key.rpartition(".")[2] for key in keys if key.split(".")[:-1] == list(path)}
        reasons = {
            "which has no such key": [*_drop_unknown(table, member, members, own)],
            "which does not take that value": [*_drop_unfit(table, member, tag, own)],
        }
        for reason, lost in reasons.items():
            if lost:
                names = " and ".join(f"{'.'.join(path)}.{key}" for key in lost)
                fitted.left_out.append(f"{names}: left out for {tag}, {reason}.")
                tables[path] = None
    fitted.overrides = [*(f"{'.'.join(path)}={write_value(_find(written, path))}" for path in tables), *changes]
    return fitted


def _open_words(written: Table, path: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A word that stands for a section becomes a table, where a key below it is to be set."""
    for depth in range(1, len(path)):
        above, name = _find(written, path[: depth - 1]), path[depth - 1]
        if above is not None and isinstance(above.get(name), str):
            above[name] = as_kind(above[name])
            yield tuple(path[:depth])


def _list_choices(written: Table, keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The sections whose kind is changed; a decoder that names no family follows its encoder."""
    for key in keys:
        *path, last = key.split(".")
        if last in CHOOSERS and path:
            yield tuple(path)
            decoder = _find(written, ("model", "decoder"))
            if path == ["model", "encoder"] and decoder is not None and "family" not in decoder:
                yield ("model", "decoder")


def _find(written: Table, path: Sequence[str]) -> Table | None:
    for name in path:
        inner = written.get(name)
        if not isinstance(inner, dict):
            return None
        written = inner
    return written


def _find_tag(written: Table, path: tuple[str, ...]) -> Any:
    tables = (_find(written, path), _find(written, (*path[:-1], "encoder")) if path[-1] == "decoder" else None)
    return next((table[name] for table in tables if table for name in CHOOSERS if name in table), None)


def _list_tags(member: type[BaseModel]) -> tuple[Any, ...]:
    name = next((name for name in CHOOSERS if name in member.model_fields), None)
    return () if name is None else get_args(member.model_fields[name].annotation)


def _drop_unknown(
    table: Table, member: type[BaseModel], members: Sequence[type[BaseModel]], own: set[str]
) -> Iterator[str]:
    """Leave out what only other members of the union have; what none of them has is a fault."""
    for key in [key for key in table if key not in member.model_fields and key not in own]:
        if any(key in other.model_fields for other in members):
            del table[key]
            yield key


def _drop_unfit(table: Table, member: type[BaseModel], tag: Any, own: set[str]) -> Iterator[str]:
    """Leave out keys that this member has, too, but whose values it does not take."""
    chooser = next(name for name in CHOOSERS if name in member.model_fields)
    try:
        member.model_validate({chooser: tag, **table})
    except ValidationError as error:
        unfit = {str(fault["loc"][0]) for fault in error.errors() if fault["loc"]} & table.keys() - own - {chooser}
        for key in sorted(unfit):
            del table[key]
            yield key
