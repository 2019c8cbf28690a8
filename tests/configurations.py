"""Random configurations, made from the sections themselves, with values that are accepted and some that are refused."""

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

SMALL = st.sampled_from([1, 2, 3, 4, 6, 8, 16, 34, 64, 100, 320])
FLOATS = st.sampled_from([0.0, 1e-7, 0.1, 0.5, 1.0, 2, 3.5, 1e16])
TEXTS = st.sampled_from(["a", "ä b", 'quote " and \\', "tab\tline\nend", "\x7f", "\x01", "\u2028", "😀", "#", "x = 1"])


def values_of(annotation: Any, limits: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """What a user may write for a field, and some of what is refused."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return values_of(inner[0], (*limits, *inner[1:]))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return tables_of(annotation)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values_of(part, limits) for part in inner if part is not type(None)))
    if origin is tuple:
        return st.lists(values_of(inner[0]), max_size=2)
    plain = {bool: st.booleans(), int: SMALL, float: FLOATS, str: TEXTS}
    return plain[annotation].filter(lambda value: all(_fits(value, limit) for limit in limits))


def _fits(value: Any, limit: Any) -> bool:
    for part in getattr(limit, "metadata", None) or [limit]:
        match part:
            case Gt(gt=bound) if not value > bound:
                return False
            case Ge(ge=bound) if not value >= bound:
                return False
            case Lt(lt=bound) if not value < bound:
                return False
            case Le(le=bound) if not value <= bound:
                return False
            case MinLen(min_length=bound) if len(value) < bound:
                return False
    return True


@st.composite
def tables_of(draw: st.DrawFn, section: type[BaseModel]) -> dict[str, Any]:
    """A table with a few of its keys; the key that chooses the table and those without a default are always there."""
    table = {}
    names = [name for name in section.model_fields if name not in ("task", "init", "size", "data", "features")]
    chosen = set(draw(st.lists(st.sampled_from(names), max_size=3))) if names else set()
    for name, field in section.model_fields.items():
        if name in ("kind", "family", "format") or (field.is_required() and name != "data"):
            chosen.add(name)
    for name in chosen:
        table[name] = draw(_values_of_field(section.model_fields[name]))
    return table


def _values_of_field(field: FieldInfo) -> st.SearchStrategy[Any]:
    return values_of(field.annotation, tuple(field.metadata))


def values_of_fields(section: type[BaseModel]) -> dict[str, st.SearchStrategy[Any]]:
    """What a user may write for each field of a section."""
    return {name: _values_of_field(field) for name, field in section.model_fields.items()}
