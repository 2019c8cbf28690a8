"""Options that several commands share, declared once. A command takes a group of them as one parameter."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, Literal

import typer

Engine = Literal["compiled", "open", "ctranslate2", "ctranslate2-int8"]
EngineOption = Annotated[
    Engine,
    typer.Option("--engine", help="What computes: the network, compiled or in the open, or CTranslate2, also in int8."),
]
_SEARCH: dict[str, tuple[type, str]] = {
    "beam": (int, "Hypotheses followed at once; 1, the default, is greedy."),
    "nbest": (int, "Answers a line, best first, separated by tabs."),
    "length_penalty": (float, "0 favours short answers; 1 is the default."),
    "coverage_penalty": (float, "What it costs to leave parts of the source unattended."),
    "sample": (bool, "Draw tokens, instead of looking for the best."),
    "temperature": (float, "Below 1, what is likely becomes likelier."),
    "top_k": (int, "Draw among the k most probable tokens."),
    "top_p": (float, "Draw among the fewest tokens with this probability together."),
    "min_p": (float, "Draw among tokens this many times as probable as the best, or more."),
    "seed": (int, "With the number of a line, it decides what is drawn."),
    "min_length": (int, "The least tokens of an answer."),
    "max_length": (int, "The most tokens of an answer."),
    "prefix": (str, "What every answer begins with."),
    "constraint": (list[str], "What every answer contains; may be given several times."),
    "avoid": (list[str], "What no answer contains; may be given several times."),
}
"""The options of a search. The defaults are those of `Model.translate`."""
GENERATE = tuple(name for name in _SEARCH if name != "coverage_penalty")
"""The options that make sense without a source."""


def takes_search(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options of a search, or all; it takes those that were given as the parameter `search`."""

    def collect(**options: Any) -> dict[str, Any]:
        if "constraint" in options:
            options["constraints"] = options.pop("constraint")
        return keep_given(**options)

    options: dict[str, tuple[Any, Any]] = {}
    for name in names or _SEARCH:
        kind, help = _SEARCH[name]
        option = typer.Option(f"--{name.replace('_', '-')}", help=help)
        options[name] = (Annotated[kind if kind is bool else kind | None, option], False if kind is bool else None)
    return expand("search", options, collect)


def keep_given(**options: Any) -> dict[str, Any]:
    """The options that were given; the others are for the model to decide."""
    return {key: value for key, value in options.items() if value is not None and value is not False and value != []}


def expand(
    parameter: str, options: Mapping[str, tuple[Any, Any]], collect: Callable[..., Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put several options, each a type and a default, in the place of one parameter; `collect` makes it of them."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
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
