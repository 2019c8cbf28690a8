"""`weft new` and `weft schema`: help with the configuration before there is one."""

from pathlib import Path
from typing import Annotated

import typer


def new(
    task: Annotated[str, typer.Argument(help="The task, such as translation or tagging.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to this file, not to the terminal.")
    ] = None,
) -> None:
    """Print a commented configuration for a task.

    Example: weft new translation -o de-en.toml
    """
    import difflib

    from weft.config.tasks import TASKS
    from weft.config.template import render
    from weft.errors import ConfigError

    if task not in TASKS:
        close = difflib.get_close_matches(task, TASKS, n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        raise ConfigError(f'"{task}" is not a task{hint} The tasks are: {", ".join(TASKS)}')
    text = render(task)
    if output is None:
        typer.echo(text, nl=False)
    elif output.exists():
        raise ConfigError(f"{output} exists already; choose another name, or remove it first")
    else:
        output.write_text(text, encoding="utf-8")
        typer.echo(f"wrote {output}; put your files in [data], then: weft check {output}")


def schema() -> None:
    """Print the JSON schema of configuration files, for editors.

    Example: weft schema > weft.schema.json
    """
    import json

    from weft.config import schema as build_schema

    typer.echo(json.dumps(build_schema(), indent=2, ensure_ascii=False))
