"""`weft train`: a configuration in, a run folder out."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[Path, typer.Argument(help="The configuration file; `weft new TASK` writes one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes to it: section.key=value ...")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run's folder; otherwise runs/NAME.")] = None,
) -> None:
    """Train a model. The same command goes on where an interrupted training stopped.

    Example: weft train de-en.toml train.minutes=10 --out runs/quick
    """
    import signal

    from rich.console import Console

    from weft.train.job import train as run_training
    from weft.train.watch import open_watch

    caught: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: caught.append(received))
    with open_watch(Console(stderr=True)) as watch:
        run = run_training(config, overrides or (), out=out, watch=watch, should_stop=lambda: bool(caught))
    if caught:
        raise typer.Exit(128 + caught[0])
    typer.echo(str(run.folder))
