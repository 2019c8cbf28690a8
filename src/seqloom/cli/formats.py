"""`seqloom import`, `export` and `unpickle`: other people's weights as runs of ours, and runs in other formats."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def import_(
    folder: Annotated[
        Path, typer.Argument(help="A Hugging Face folder (config.json, safetensors, tokeniser) or ELMo's.")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder of the run; default: runs/NAME.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was imported as JSON.")] = False,
) -> None:
    """Write published weights as a finished run, which every other command takes.

    Example: seqloom import all-MiniLM-L6-v2 -o runs/minilm
    """
    from seqloom.errors import RunError
    from seqloom.hub.load import load_published
    from seqloom.runs.machine import describe_machine
    from seqloom.runs.run import TrainingRun

    run = TrainingRun(out if out is not None else Path("runs") / folder.resolve().name)
    if run.folder.exists() and any(run.folder.iterdir()):
        raise RunError(f"{run.folder}: is not empty; choose another folder with --out")
    typer.echo(f"reading {folder}", err=True)
    found = load_published(folder)
    run.folder.mkdir(parents=True, exist_ok=True)
    found.tokenizer.save(run.folder / "tokenizer.json")
    kinds = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in found.network.parameters()})
    run.finish(found.network, found.config, found.labels, describe_machine() | {"precision": ", ".join(kinds)})
    size = sum(parameter.numel() for parameter in found.network.parameters())
    if as_json:
        typer.echo(json.dumps({"run": str(run.folder), "task": found.config.task, "parameters": size}))
    else:
        typer.echo(f"{run.folder}: a finished run for {found.config.task}, {size:,} parameters")


def unpickle(folder: Annotated[Path, typer.Argument(help="A folder with a pytorch_model.bin, or its parts.")]) -> None:
    """Convert an old checkpoint, which is a pickle, to model.safetensors beside it.

    A pickle is a program. Only this command opens one, with torch's restricted unpickler, which makes tensors and
    refuses everything else. Still, convert only files that you trust.

    Example: seqloom unpickle downloads/bert-base
    """
    from seqloom.hub.huggingface.files import convert_pickle, find_pickles

    for pickle in find_pickles(folder):
        typer.echo(f"opening {pickle}, a pickle, with the restricted unpickler", err=True)
    typer.echo(convert_pickle(folder))


def export(
    run: Annotated[Path, typer.Argument(help="A finished run.")],
    to: Annotated[Literal["huggingface", "ctranslate2", "onnx"], typer.Option("--to", help="The format.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write; default: RUN-FORMAT, beside the run.")
    ] = None,
    licence: Annotated[str, typer.Option("--licence", help="For the model card, such as apache-2.0.")] = "unknown",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a run in another format, run it there, and compare.

    huggingface: a folder that `transformers` loads, with the tokeniser and a model card. ctranslate2: a folder for its
    Translator, Generator or Encoder, in float32. onnx: graphs for ONNX Runtime, for any number of texts of any length.

    Options that a format cannot express are refused by name. If the exported model computes something else, nothing is
    kept and the exit code is 1.

    Example: seqloom export runs/de-en --to huggingface -o de-en
    """
    from seqloom.predict.export import export as write

    typer.echo(f"exporting {run} and comparing the result with it", err=True)
    done = write(run, to, out, licence=licence)
    if as_json:
        answer = {"folder": str(done.folder), "format": done.format, "kind": done.kind, "difference": done.difference}
        typer.echo(json.dumps(answer))
    else:
        typer.echo(f"{done.folder}: {done.kind}, differs by at most {done.difference:.1e}")
