"""`seqloom prepare`: everything that a training does before its first step."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from seqloom.data.encoding import Spread


def prepare(
    config: Annotated[Path, typer.Argument(help="The configuration file; `seqloom new TASK` writes one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes to the file: section.key=value ...")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run's folder; by default runs/NAME beside the file.")
    ] = None,
    engine: Annotated[
        Literal["here", "ray"],
        typer.Option("--engine", help="Where texts are encoded: here, or on a Ray cluster (RAY_ADDRESS)."),
    ] = "here",
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many processes --engine ray starts; by default, one per core.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check the data, learn the tokeniser and encode the texts into the run's folder.

    `seqloom train` goes on from there. The files are the same wherever they are made, and are not made twice.

    Example: seqloom prepare de-en.toml --engine ray && seqloom train de-en.toml
    """
    import json
    import time

    from rich.console import Console

    from seqloom.cli.process import disable_trimming
    from seqloom.training.job import prepare_run

    if workers is not None and engine != "ray":
        raise typer.BadParameter(
            "--workers is the number of processes of --engine ray; leave it out, or add --engine ray"
        )
    disable_trimming()
    console, start = Console(stderr=True), time.monotonic()
    where: AbstractContextManager[Spread | None] = nullcontext()
    if engine == "ray":
        from seqloom.predict.ray import spread_encoding

        where = spread_encoding(workers)
    with where as spread:
        folder, prepared = prepare_run(
            config, overrides or (), out, lambda text: console.print(text, highlight=False, soft_wrap=True), spread
        )
    records = {split: len(found) for split, found in prepared.records.items()}
    report = {
        "path": str(folder),
        "records": records,
        "vocab_size": prepared.tokenizer.vocab_size,
        "seconds": round(time.monotonic() - start, 2),
        "data": prepared.fingerprint,
    }
    typer.echo(json.dumps(report) if as_json else str(folder))
