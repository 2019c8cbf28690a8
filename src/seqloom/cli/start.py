"""`seqloom demo`, `new` and `schema`: where to start when there is no configuration yet."""

import json
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
    """Print a short configuration for a task, to put the names of your files in.

    Example: seqloom new translation -o de-en.toml
    """
    from seqloom.config.faults import suggest
    from seqloom.config.recipes import RECIPES
    from seqloom.errors import ConfigError
    from seqloom.tasks.configuration import find_task
    from seqloom.tasks.template import render

    find_task(task)
    fitting = {name: chosen for name, chosen in RECIPES.items() if chosen.task == task}
    if recipe is not None and recipe not in fitting:
        known = f"it has {', '.join(fitting)}" if fitting else "it has none"
        raise ConfigError(f'"{recipe}" is not a recipe for {task}{suggest(recipe, list(fitting))}; {known}')
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


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Print this one; default: list them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list, one JSON object a line.")] = False,
) -> None:
    """List the configurations to start from, those of the tasks and those of the literature, or print one.

    Example: seqloom recipes gru-attention > gru.toml
    """
    from seqloom.cli.evaluate import align
    from seqloom.config.faults import suggest
    from seqloom.config.recipes import RECIPES
    from seqloom.errors import ConfigError
    from seqloom.tasks import TASKS
    from seqloom.tasks.template import render

    if name is not None:
        if name not in TASKS and name not in RECIPES:
            near = suggest(name, [*TASKS, *RECIPES])
            raise ConfigError(f'"{name}" is not a recipe{near}; `seqloom recipes` lists them')
        typer.echo(render(name) if name in TASKS else render(RECIPES[name].task, RECIPES[name]), nl=False)
        return
    rows = [(task, task, f"The default. {_first_sentence(TASKS[task])}") for task in TASKS]
    rows += [(recipe.name, recipe.task, f"{recipe.about[0].upper()}{recipe.about[1:]}.") for recipe in RECIPES.values()]
    head = ("name", "task", "about")
    if as_json:
        for row in rows:
            typer.echo(json.dumps(dict(zip(head, row, strict=True)), ensure_ascii=False))
    else:
        typer.echo("\n".join(align(head, rows)))


def _first_sentence(task: type) -> str:
    return (task.__doc__ or "").strip().splitlines()[0]


def schema() -> None:
    """Print the JSON schema of configuration files, for editors.

    Example: seqloom schema > seqloom.schema.json
    """
    from seqloom.tasks.configuration import schema as build_schema

    typer.echo(json.dumps(build_schema(), indent=2, ensure_ascii=False))
