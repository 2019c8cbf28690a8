"""`weft train`: a configuration in, a run folder out."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[Path, typer.Argument(help="The configuration file; `weft new TASK` writes one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes to it: section.key=value ...")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run's folder; otherwise runs/NAME.")] = None,
    processes: Annotated[
        int,
        typer.Option("--processes", min=1, help="How many processes train it together; a GPU needs one of its own."),
    ] = 1,
) -> None:
    """Train a model. The same command goes on where an interrupted training stopped.

    Example: weft train de-en.toml train.minutes=10 --out runs/quick
    """
    from rich.console import Console

    console = Console(stderr=True)
    if processes > 1:
        from weft.config import load
        from weft.train.launch import launch

        load(config, overrides or ())  # what is wrong with it is said once, not by every process
        arguments = ["train", str(config), *(overrides or ()), *(("--out", str(out)) if out is not None else ())]
        raise typer.Exit(launch(arguments, processes, lambda text: console.print(text, highlight=False)))

    from weft.cli.stop import Stop
    from weft.train.job import train as run_training
    from weft.train.watch import open_watch

    stop = Stop()
    with open_watch(console) as watch:
        run = run_training(config, overrides or (), out=out, watch=watch, should_stop=stop)
    if stop.number:
        raise typer.Exit(128 + stop.number)
    if run.writes:
        typer.echo(str(run.folder))
