"""Options that several commands share, declared once. A command takes a group of them as one parameter."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer
from typer.core import TyperGroup

from seqloom.decode.options import Search

Engine = Literal["compiled", "open", "ctranslate2", "ctranslate2-int8"]
EngineOption = Annotated[
    Engine,
    typer.Option(
        "--engine", help="What computes: the compiled network, the network itself (open), or CTranslate2, also in int8."
    ),
]
Precision = Literal["float32", "bfloat16", "int8"]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        "--precision",
        help="What Transformers compute in; bfloat16 and int8 are faster where the processor has them (seqloom info), "
        "and round.",
    ),
]
_SEARCH = {name: get_args(kind) for name, kind in get_type_hints(Search, include_extras=True).items()}
"""The type and the help of each search option, read from the fields of `Search`."""
Command = Callable[..., None]


def name_options(message: str, command: Any, arguments: Sequence[str]) -> str:
    """A message for users of the command line: `out`, the name of an argument in Python, becomes --out.

    What is replaced are the options of the command that the arguments name.
    """
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}

    def rename(found: re.Match[str]) -> str:
        option = f"--{found[1].replace('_', '-')}"
        return option if option in options else found[0]

    return re.sub("`([a-z_]+)`", rename, message)


class Commands(TyperGroup):
    """A group whose help shows the whole first sentence of each command."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [(name, command.get_short_help_str(limit=1000)) for name, command in found.items() if command]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; it ends well when nobody reads its output any more: `seqloom ... | head`."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, SystemExit) as error:
            if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):  # rich's answer
                raise
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for what is still to be flushed
            raise typer.Exit(0) from None


def takes_search(
    only: Collection[str] = tuple(_SEARCH), *, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Add the search options to a command, which receives the given ones as the dict `search`."""
    options = [_declare_search(name) for name in _SEARCH if name in only and name not in without]
    return expand("search", options, keep_given)


def _declare_search(name: str) -> inspect.Parameter:
    kind, text = _SEARCH[name]
    flag = f"--{name.replace('_', '-')}"
    if kind is bool:
        return declare(name, Annotated[kind, typer.Option(flag, help=text)], False)
    if str in get_args(kind):
        kind, text = list[str], f"{text} May be given several times."
    return declare(name, Annotated[kind | None, typer.Option(flag, help=text)], None)


def declare(name: str, kind: Any, default: Any) -> inspect.Parameter:
    """A parameter of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def keep_given(**options: Any) -> dict[str, Any]:
    """The options that were given; the model decides the others."""
    return {key: value for key, value in options.items() if value is not None and value is not False and value != []}


def expand(
    parameter: str, options: Sequence[inspect.Parameter], collect: Callable[..., Any]
) -> Callable[[Command], Command]:
    """Replace one parameter of a command by several options; `collect` makes its value from theirs."""

    def decorate(function: Command) -> Command:
        outside: list[inspect.Parameter] = []
        for one in inspect.signature(function).parameters.values():
            outside += options if one.name == parameter else [one]

        @wraps(function)
        def command(**given: Any) -> None:
            given[parameter] = collect(**{option.name: given.pop(option.name) for option in options})
            function(**given)

        del command.__wrapped__  # typer would read the parameters of the wrapped function
        outside = [one.replace(kind=one.KEYWORD_ONLY) for one in outside]
        command.__signature__ = inspect.Signature(outside)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in outside}
        return command

    return decorate
