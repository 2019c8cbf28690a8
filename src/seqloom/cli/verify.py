"""`seqloom verify`: is a run intact, and are its answers independent of each other?"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.options import Precision, PrecisionOption

if TYPE_CHECKING:
    from seqloom.predict.invariance import Check
    from seqloom.runs.verify import Verdict


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    deep: Annotated[bool, typer.Option("--deep", help="Also check that no answer depends on other lines.")] = False,
    file: Annotated[
        Path | None, typer.Option("--lines", metavar="FILE", help="With --deep: lines to check, one text each.")
    ] = None,
    precision: PrecisionOption = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Check the hashes, shapes and finiteness of a run's model and of its checkpoints.

    With --deep the model also answers lines, from the run's own data if it still has them: each line alone and among
    others, in everything that the model can do. Texts must be the same, and numbers equal to 1e-5. Texts are also read
    token by token and as a whole; the scores must be equal to 1e-4, in bfloat16 to 0.02 and in int8 to 0.2.

    Example: seqloom verify runs/de-en --deep
    """
    if not deep and (file is not None or precision != "float32"):
        raise typer.BadParameter("--lines and --precision go with --deep")
    verdicts = []
    for verdict in _judge(run, file, precision, deep=deep):
        verdicts.append(verdict)
        if not as_json:
            typer.echo(_describe(verdict))
    if as_json:
        typer.echo(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    if any(verdict.fault for verdict in verdicts):
        raise typer.Exit(1)


def _judge(run: Path, file: Path | None, precision: Precision, *, deep: bool) -> "Iterator[Verdict | Check]":
    from seqloom.runs.verify import verify

    sound = True
    for verdict in verify(run):
        sound &= verdict.part != "model" or not verdict.fault
        yield verdict
    if deep and (run / "vectors.bin").exists():
        typer.echo("word vectors are looked up, not computed, so none can depend on others", err=True)
    elif deep and sound:  # a damaged model cannot answer
        from seqloom.predict.invariance import check_invariance, find_lines
        from seqloom.predict.load import open_predictor

        model = open_predictor(run, precision=precision)
        origin, lines = find_lines(run, model, file)
        typer.echo(f"checking {len(lines)} lines of {origin}, alone and among others", err=True)
        yield from check_invariance(model, lines)


def _describe(verdict: "Verdict | Check") -> str:
    from seqloom.predict.invariance import Check

    text = f"{verdict.part}: {verdict.fault or 'ok'}"
    if isinstance(verdict, Check):
        text += f" ({verdict.lines} lines, largest difference {verdict.difference:.1g})"
    return text
