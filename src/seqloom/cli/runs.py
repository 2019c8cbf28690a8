"""`seqloom runs`: what has been trained, how good it is, how long it took."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from seqloom.runs.listing import Listed


_HEAD = ("run", "task", "family", "size", "best", "steps", "time", "state")


def runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to look, at any depth.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the runs in a folder: how good each is, how long it took, and whether it is finished or can be resumed.

    How good a run is, its best validation says, by the measure that chose the checkpoint.

    Example: seqloom runs runs --json
    """
    import json
    from dataclasses import asdict

    from seqloom.cli.evaluate import align
    from seqloom.errors import ConfigError
    from seqloom.runs.listing import list_runs

    if not folder.is_dir() and folder != Path("runs"):
        raise ConfigError(f"{folder}: there is no such folder")
    found = list(list_runs(folder))
    if as_json:
        for one in found:
            typer.echo(json.dumps(asdict(one), ensure_ascii=False))
    elif found:
        typer.echo(
            "\n".join(align(("run", "task", "family", "size", "best", "steps", "time", "state"), map(_row, found)))
        )
    else:
        typer.echo(f"there are no runs in {folder}; `seqloom train CONFIG` makes one")


def _row(run: "Listed") -> tuple[str, ...]:
    best = "" if run.best is None else f"{run.best.metric} {run.best.value:.3f} at step {run.best.step:,}"
    best += f" ({run.best.sample})" if run.best is not None and run.best.sample else ""
    steps = "" if run.steps is None else f"{run.steps:,}"
    state = "resumable: the same `seqloom train` goes on" if run.state == "resumable" else run.state
    return run.folder, run.task or "", run.family or "", run.size or "", best, steps, _time(run.minutes), state


def _time(minutes: float | None) -> str:
    if minutes is None:
        return ""
    return (
        f"{60.0 * minutes:.0f} s"
        if minutes < 2.0
        else f"{minutes:.0f} min"
        if minutes < 120.0
        else f"{minutes / 60.0:.1f} h"
    )
