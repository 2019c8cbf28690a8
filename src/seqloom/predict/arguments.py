"""Arguments of the Python interface: an unknown name or a value of a wrong type is refused with a sentence."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache, wraps
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from seqloom.predict.search import SearchKeywords, check_known, check_value

F = TypeVar("F", bound=Callable[..., Any])


def check_keywords(function: F) -> F:
    """Refuse an unknown keyword of a function and suggest the nearest known one; refuse a value of a wrong type."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [one.name for one in parameters if one.kind in kinds and one.name != "self"]
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        known += SearchKeywords.__annotations__

    @cache
    def get_types() -> dict[str, Any]:  # at the first call: some are named before they are defined
        return get_type_hints(function)

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        for name, value in named.items():
            check_known(name, known)
            if name not in SearchKeywords.__annotations__ and _is_plain(kind := get_types().get(name)):
                check_value(name, value, kind)
        return function(*given, **named)

    return call  # type: ignore[return-value]


def _is_plain(kind: Any) -> bool:
    """Whether a type is made of words, numbers and truth values, or a sequence of texts."""
    match get_origin(kind):
        case None:
            return kind in (int, float, bool, str, type(None))
        case origin if origin is Literal:
            return True
        case origin if origin in (Union, UnionType):
            return all(map(_is_plain, get_args(kind)))
        case origin:
            return origin is Sequence and get_args(kind) == (str,)
