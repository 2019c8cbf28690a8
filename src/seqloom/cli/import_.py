"""`seqloom import` and `seqloom unpickle`: other people's weights as a run of ours."""

from pathlib import Path
from typing import Annotated

import typer


def import_(
    folder: Annotated[
        Path, typer.Argument(help="A Hugging Face folder (config.json, safetensors, tokeniser) or ELMo's.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the run is written; default: runs/NAME.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was imported as JSON.")] = False,
) -> None:
    """Write published weights as a finished run, which every other command takes.

    Example: seqloom import all-MiniLM-L6-v2 -o runs/minilm
    """
    import json

    from seqloom.errors import RunError
    from seqloom.hub.load import load_published
    from seqloom.runs.machine import describe_machine
    from seqloom.runs.run import Run

    run = Run(out if out is not None else Path("runs") / folder.resolve().name)
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


def unpickle(folder: Annotated[Path, typer.Argument(help="A folder with a pytorch_model.bin.")]) -> None:
    """Convert an old checkpoint, which is a pickle, to model.safetensors beside it.

    A pickle is a program. It is opened here, and nowhere else, with torch's restricted unpickler, which makes tensors
    and refuses everything else. Still: convert only what you trust.

    Example: seqloom unpickle downloads/bert-base
    """
    from seqloom.hub.huggingface.files import convert_pickle

    typer.echo(f"opening {folder / 'pytorch_model.bin'}, a pickle, with the restricted unpickler", err=True)
    typer.echo(convert_pickle(folder))
