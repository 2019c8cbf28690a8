"""The arguments of the Python interface: wrong ones are refused with a sentence, and help shows every option."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache, wraps
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from seqloom.predict.search import SearchKeywords, check_known, check_value, list_options

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

    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        _show_search(call, function)
    return call  # type: ignore[return-value]


def _show_search(call: Any, function: Callable[..., Any]) -> None:
    """Put the options of a search in place of `**search` where a person looks: in the signature and the help."""
    signature = inspect.signature(function)
    kept = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    options = list_options()
    added = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.kind)
        for one in options
    ]
    call.__signature__ = signature.replace(parameters=[*kept, *added])
    lines = [f"    {one.name}: {one.about}" for one in options]
    call.__doc__ = "\n".join([inspect.getdoc(function) or "", "", "Options of the search:", *lines])


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
