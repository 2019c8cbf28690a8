"""`seqloom export`: a run of ours as other people's programs read it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class To(StrEnum):
    """The formats there are."""

    huggingface = "huggingface"
    ctranslate2 = "ctranslate2"
    onnx = "onnx"


def export(
    run: Annotated[Path, typer.Argument(help="A finished run.")],
    to: Annotated[To, typer.Option("--to", help="The format.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where it is written; default: RUN-FORMAT, beside the run.")
    ] = None,
    licence: Annotated[str, typer.Option("--licence", help="For the model card, such as apache-2.0.")] = "unknown",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a run in another format, run it there, and compare.

    huggingface: a folder that `transformers` loads, with the tokeniser and a model card. ctranslate2: a folder for its
    Translator, Generator or Encoder, in float32. onnx: graphs for ONNX Runtime, for any number of texts of any length.

    What a format cannot express is refused by the name of the option that prevents it. If the exported model computes
    something else, nothing is kept and the exit code is 1.

    Example: seqloom export runs/de-en --to huggingface -o de-en
    """
    import json

    from seqloom.predict.export import export as write

    typer.echo(f"exporting {run}, and comparing", err=True)
    done = write(run, to.value, out, licence=licence)
    if as_json:
        answer = {"folder": str(done.folder), "format": done.format, "kind": done.kind, "difference": done.difference}
        typer.echo(json.dumps(answer))
    else:
        typer.echo(f"{done.folder}: {done.kind}, differs by at most {done.difference:.1e}")
