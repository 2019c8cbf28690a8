"""`seqloom compare`: the same data and budget for many configurations; one table, one picture."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from seqloom.lab.compare.campaign import Situation
    from seqloom.lab.compare.plan import Plan, Trial

_PAUSE = 10.0  # seconds between two lines of progress where there is no terminal


def compare(
    config: Annotated[Path, typer.Argument(help="The configuration file; `seqloom new TASK` writes one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes to the file: section.key=value ...")] = None,
    over: Annotated[
        list[str] | None,
        typer.Option("--over", metavar="KEY=VALUE,...", help="A key and the values to compare; may be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Train each with this many seeds, for intervals.")] = 3,
    match: Annotated[
        Literal["weights"] | None,
        typer.Option("--match", help="weights: choose widths so that all have as many weights as the first."),
    ] = None,
    data_share: Annotated[
        str | None,
        typer.Option("--data-share", metavar="SHARE,...", help="Shares of the training data, such as 0.01,0.1,1."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="What to compare by; by default, the metric of the task.")
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="Compare translations as they are, token by token (tok:none).")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where all goes; by default runs/compare/NAME beside the file.")
    ] = None,
    engine: Annotated[
        Literal["here", "ray"],
        typer.Option("--engine", help="Where to train: here, one after the other, or a Ray cluster (RAY_ADDRESS)."),
    ] = "here",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a grid of configurations on the same data and budget, and say which is better, by how much, how surely.

    Every training is an ordinary run in the folder of the comparison. The same command goes on after an interruption.

    Example: seqloom compare de-en.toml --over model.encoder.family=transformer,recurrent --match weights
    """
    import json

    from rich.console import Console

    from seqloom.cli.process import Stop
    from seqloom.lab.compare.campaign import run_all, train_here
    from seqloom.lab.compare.cluster import train_on_cluster
    from seqloom.lab.compare.findings import collect
    from seqloom.lab.compare.plan import Wish, make_plan
    from seqloom.lab.compare.report import Report

    console = Console(stderr=True)

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    changes = tuple(overrides or ())
    wish = Wish(config, changes, tuple(over or ()), seeds, data_share, match == "weights", out, metric, tokenized)
    plan = make_plan(wish, say)
    for note in plan.notes:
        say(note)
    say(_announce(plan))
    stop = Stop()
    stop()  # from here on it is asked
    chosen = train_here(_work) if engine == "here" else train_on_cluster(plan.task.train.threads, _work_elsewhere)
    with _show(console) as show:
        ended = run_all(plan, chosen, show, stop)
    if stop.number:
        say(f"stopped; {wish.folder} keeps what was done, and the same command goes on from there")
        raise typer.Exit(128 + stop.number)
    report = Report(plan, collect(plan))
    facts = report.write()
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        typer.echo(report.tell())
        typer.echo(f"\n{wish.folder}: compare.md, .svg, .json, and a run for each training")
    if report.failed or not ended:
        raise typer.Exit(1)


def _announce(plan: "Plan") -> str:
    cells, seeds, budget = len(plan.grid.cells), plan.wish.seeds, plan.task.train.budget
    text = f"{len(plan.trials)} trainings: {cells} {'cell' if cells == 1 else 'cells'}, "
    text += f"{seeds} {'seed' if seeds == 1 else 'seeds'}, {budget or 'the default budget'} each"
    if budget is not None and budget.unit == "minutes":
        text += f"; {_spell_time(60.0 * budget.number * len(plan.trials))} one after the other"
    return text


def _work(trial: "Trial") -> None:
    """What a process does that was started for one training."""
    from seqloom.cli.process import Stop, disable_trimming
    from seqloom.lab.compare.trial import run_trial

    disable_trimming()
    run_trial(trial, Stop())


def _work_elsewhere(trial: "Trial") -> None:
    """The same in a worker of Ray, which is stopped by Ray."""
    from seqloom.cli.process import disable_trimming
    from seqloom.lab.compare.trial import run_trial

    disable_trimming()
    run_trial(trial)


@contextmanager
def _show(console: "Console") -> "Iterator[Callable[[Situation], None]]":
    """Show how far the comparison is: a bar in a terminal, a line now and then elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn

    if not console.is_terminal:
        last = 0.0

        def tell(now: "Situation") -> None:
            nonlocal last
            if now.news or (now.running and time.monotonic() - last >= _PAUSE):
                last = time.monotonic()
                parts = (now.news, f"training {now.running}" if now.running else "", _spell_left(now))
                console.print(
                    f"{now.done} of {now.total}: {'; '.join(filter(None, parts))}", highlight=False, soft_wrap=True
                )

        yield tell
        return
    columns = (BarColumn(), TextColumn("{task.fields[count]}"), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0, count="")

        def move(now: "Situation") -> None:
            if now.news:
                bar.console.print(f"{now.done} of {now.total}: {now.news}", highlight=False, soft_wrap=True)
            text = ", ".join(filter(None, (now.running, _spell_left(now))))
            bar.update(task, completed=now.share, description=text, count=f"{now.done} of {now.total}")

        yield move


def _spell_left(now: "Situation") -> str:
    return "" if now.seconds_left is None or now.done == now.total else f"about {_spell_time(now.seconds_left)} left"


def _spell_time(seconds: float) -> str:
    for size, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
