"""`weft verify`: is a run still what it was?"""

from pathlib import Path
from typing import Annotated

import typer


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Check the hashes, shapes and finiteness of a run's model and of its checkpoints.

    Example: weft verify runs/de-en
    """
    import json
    from dataclasses import asdict

    from weft.train.verify import verify as judge

    verdicts = list(judge(run))
    if as_json:
        typer.echo(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    else:
        for verdict in verdicts:
            typer.echo(f"{verdict.part}: {verdict.fault or 'ok'}")
    if any(verdict.fault for verdict in verdicts):
        raise typer.Exit(1)
