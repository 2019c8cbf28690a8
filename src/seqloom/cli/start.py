"""`seqloom demo`, `new` and `schema`: where to start when there is no configuration yet."""

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder for its data and its model.")] = Path("runs/demo"),
) -> None:
    """Train a small model while you watch, test it, and show what it attends to.

    Example: seqloom demo
    """
    from rich.console import Console

    from seqloom.cli.process import disable_trimming
    from seqloom.demo import run

    disable_trimming()
    run(Console(), out)


def new(
    task: Annotated[str, typer.Argument(help="The task, such as translation or tagging.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file to write; default: print to the terminal (-).")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Start from a recipe; `seqloom recipes` lists them.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Show every key, with its meaning and its default.")] = False,
) -> None:
    """Print a commented configuration for a task.

    Example: seqloom new translation -o de-en.toml
    """
    from seqloom.config.recipes import RECIPES
    from seqloom.errors import ConfigError
    from seqloom.tasks import TASKS
    from seqloom.tasks.template import render

    if task not in TASKS:
        raise ConfigError(f'"{task}" is not a task{_guess(task, TASKS)} The tasks are: {", ".join(TASKS)}')
    fitting = {name: chosen for name, chosen in RECIPES.items() if chosen.task == task}
    if recipe is not None and recipe not in fitting:
        known = f"Its recipes are: {', '.join(fitting)}" if fitting else "It has none"
        raise ConfigError(f'"{recipe}" is not a recipe for {task}{_guess(recipe, fitting)} {known}')
    text = render(task, None if recipe is None else fitting[recipe], full=full)
    if output in (None, Path("-")):
        typer.echo(text, nl=False)
    elif output.exists():
        raise ConfigError(f"{output} exists already; choose another name, or remove it first")
    else:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{output} cannot be written: {error.strerror}") from None
        typer.echo(f"wrote {output}; put your files in [data], then: seqloom check {output}")


def _guess(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else "."


def schema() -> None:
    """Print the JSON schema of configuration files, for editors.

    Example: seqloom schema > seqloom.schema.json
    """
    from seqloom.tasks.configuration import schema as build_schema

    typer.echo(json.dumps(build_schema(), indent=2, ensure_ascii=False))
