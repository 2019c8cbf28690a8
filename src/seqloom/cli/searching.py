"""The options of a search on the command line, made from their one declaration in `decode.options`."""

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer

from seqloom.cli.lines import keep_given
from seqloom.decode.options import Search

Searcher = Literal["compiled", "open", "ctranslate2", "ctranslate2-int8"]
Engine = Annotated[
    Searcher,
    typer.Option("--engine", help="What computes: the network, compiled or in the open, or CTranslate2, also in int8."),
]
BulkEngine = Annotated[
    Literal["compiled", "open", "ctranslate2", "ctranslate2-int8", "ray"],
    typer.Option(
        "--engine",
        help="What computes: the network, compiled or in the open, CTranslate2, also in int8, or a Ray cluster "
        "(RAY_ADDRESS).",
    ),
]
_OPTIONS = {name: get_args(kind) for name, kind in get_type_hints(Search, include_extras=True).items()}
"""The type and the help of each option."""
Command = Callable[..., None]


def take_search_options(
    only: Collection[str] = tuple(_OPTIONS), *, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Put the options of a search in the place of a command's parameter `search`, which gets those that were given."""
    names = [name for name in _OPTIONS if name in only and name not in without]

    def extend(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            command(search=keep_given(**{name: given.pop(name) for name in names}), **given)

        signature = inspect.signature(command)
        parameters = [
            parameter
            for own in signature.parameters.values()
            for parameter in ([_make_parameter(name) for name in names] if own.name == "search" else [own])
        ]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return extend


def _make_parameter(name: str) -> inspect.Parameter:
    kind, text = _OPTIONS[name]
    flag, default = f"--{name.replace('_', '-')}", None
    if kind is bool:
        default = False
    elif str in get_args(kind):
        flag, kind, text = flag.removesuffix("s"), list[str] | None, f"{text} May be given several times."
    else:
        kind = kind | None
    annotation = Annotated[kind, typer.Option(flag, help=text)]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def name_searcher(engine: Literal[Searcher, "ray"]) -> Searcher:
    """What searches; Ray only says where."""
    return "compiled" if engine == "ray" else engine
