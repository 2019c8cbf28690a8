"""Options that several commands share, declared once. A command takes a group of them as one parameter."""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer

from seqloom.decode.options import Search

Engine = Literal["compiled", "open", "ctranslate2", "ctranslate2-int8"]
EngineOption = Annotated[
    Engine,
    typer.Option("--engine", help="What computes: the network, compiled or in the open, or CTranslate2, also in int8."),
]
_SEARCH = {name: get_args(kind) for name, kind in get_type_hints(Search, include_extras=True).items()}
"""The type and the help of each option of a search, from their one declaration."""
Command = Callable[..., None]


def takes_search(
    only: Collection[str] = tuple(_SEARCH), *, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command the options of a search; it takes those that were given as its parameter `search`."""
    options = {name: _declare_search(name) for name in _SEARCH if name in only and name not in without}
    return expand("search", options, keep_given)


def _declare_search(name: str) -> tuple[Any, Any]:
    kind, text = _SEARCH[name]
    flag = f"--{name.replace('_', '-')}"
    if kind is bool:
        return Annotated[kind, typer.Option(flag, help=text)], False
    if str in get_args(kind):
        flag, kind, text = flag.removesuffix("s"), list[str], f"{text} May be given several times."
    return Annotated[kind | None, typer.Option(flag, help=text)], None


def keep_given(**options: Any) -> dict[str, Any]:
    """The options that were given; the others are for the model to decide."""
    return {key: value for key, value in options.items() if value is not None and value is not False and value != []}


def expand(
    parameter: str, options: Mapping[str, tuple[Any, Any]], collect: Callable[..., Any]
) -> Callable[[Command], Command]:
    """Put several options, each a type and a default, in the place of one parameter; `collect` makes it of them."""

    def decorate(function: Command) -> Command:
        outside = []
        for one in inspect.signature(function).parameters.values():
            if one.name == parameter:
                outside += [_declare(name, kind, default) for name, (kind, default) in options.items()]
            else:
                outside.append(one.replace(kind=one.KEYWORD_ONLY))

        @wraps(function)
        def command(**given: Any) -> None:
            given[parameter] = collect(**{name: given.pop(name) for name in options})
            function(**given)

        del command.__wrapped__  # typer would read the parameters of that one
        command.__signature__ = inspect.Signature(outside)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in outside}
        return command

    return decorate


def _declare(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
