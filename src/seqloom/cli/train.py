"""`seqloom train`: train what a configuration describes, into a run folder."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console


def train(
    config: Annotated[Path, typer.Argument(help="The configuration file; `seqloom new TASK` writes one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes to the file: section.key=value ...")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run's folder; by default runs/NAME beside the file.")
    ] = None,
    processes: Annotated[
        int,
        typer.Option("--processes", min=1, help="How many processes train together; each GPU needs its own."),
    ] = 1,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write curves for TensorBoard into the run's folder.")
    ] = False,
    find_rate: Annotated[
        bool, typer.Option("--find-rate", help="Do not train: try rising learning rates for 100 steps and suggest one.")
    ] = False,
) -> None:
    """Train a model. The same command resumes an interrupted training.

    Example: seqloom train de-en.toml train.minutes=10 --out runs/quick
    """
    from rich.console import Console

    console = Console(stderr=True)
    if processes > 1 and not find_rate:
        from seqloom.tasks.configuration import load
        from seqloom.training.distributed import launch

        load(config, overrides or ())  # so that a fault is reported once, not by every process
        options = [*(("--out", str(out)) if out is not None else ()), *(("--tensorboard",) if tensorboard else ())]
        arguments = ["train", str(config), *(overrides or ()), *options]
        raise typer.Exit(launch(arguments, processes, lambda text: console.print(text, highlight=False)))

    from seqloom.cli.process import disable_trimming

    disable_trimming()
    if find_rate:
        _find_rate(config, overrides or [], console)
        return

    from seqloom.cli.process import Stop
    from seqloom.training.job import choose_folder
    from seqloom.training.job import train as run_training
    from seqloom.training.monitor import TensorBoardMonitor, open_monitor

    stop = Stop()
    shown = open_monitor(console)
    with TensorBoardMonitor(shown, choose_folder(config, out)) if tensorboard else shown as monitor:
        run = run_training(config, overrides or (), out=out, monitor=monitor, should_stop=stop)
    if stop.number:
        raise typer.Exit(128 + stop.number)
    if os.environ.get("RANK", "0") == "0":  # of several processes, one tells
        typer.echo(str(run.folder))


def _find_rate(config: Path, overrides: list[str], console: "Console") -> None:
    import tempfile

    from seqloom.errors import ConfigError
    from seqloom.tasks import Task
    from seqloom.training.find_rate import draw_curve, find_rate
    from seqloom.training.prepare import open_config, prepare

    def report(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    with tempfile.TemporaryDirectory() as folder:
        task = open_config(config, overrides, Path(folder), report)
        if not isinstance(task, Task):
            raise ConfigError("word vectors are not trained in steps; use the default rate")
        prepared = prepare(task, config.parent, Path(folder), report)
        report("trying 100 rates")
        curve = find_rate(task, prepared, config.parent)
    console.print(draw_curve(curve), highlight=False)
    typer.echo(f"train.optimizer.learning_rate={curve.best:.2g}")
