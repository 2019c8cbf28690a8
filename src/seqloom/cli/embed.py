"""`seqloom embed`: lines in, vectors out."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqloom.cli.lines import Engine, File, Output, Resume, Run, Workers, answer_lines, keep_given

if TYPE_CHECKING:
    from seqloom.predict import Model
    from seqloom.predict.forms import Form


def embed(
    run: Run,
    file: File = None,
    level: Annotated[
        Literal["text", "token"], typer.Option(help="A vector for each text, or for each token.")
    ] = "text",
    pooling: Annotated[
        Literal["mean", "cls", "max", "attention"] | None,
        typer.Option(help="How tokens become a text's vector: the model's way, most often the mean, unless said."),
    ] = None,
    layer: Annotated[
        str, typer.Option(help="0 is the input, 1 the first layer, -1 the last; mix is the mean of all.")
    ] = "-1",
    normalise: Annotated[
        bool | None, typer.Option("--normalise/--as-is", help="Scale vectors to length 1; the model's way unless said.")
    ] = None,
    engine: Engine = "compiled",
    workers: Workers = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a line; the default without -o.")
    ] = False,
    output: Output = None,
    resume: Resume = False,
) -> None:
    """Turn each line into a vector, by any model with an encoder or decoder.

    The form of the output goes by the name of -o: .npy (a row a line, zeros for a blank line, NaN for a failed one),
    .parquet, or else lines of JSON.

    Example: seqloom embed runs/bert sentences.txt --normalise -o vectors.npy
    """
    from seqloom.errors import ConfigError
    from seqloom.predict import load
    from seqloom.predict.embed import embed_texts, embed_tokens

    if layer != "mix" and not layer.removeprefix("-").isdecimal():
        raise ConfigError(f'--layer {layer}: give a number, or "mix"')
    if level == "token" and pooling is not None:
        raise ConfigError("--pooling makes a text's vector of those of its tokens; leave it out with --level token")
    model = load(run)
    where: Any = "mix" if layer == "mix" else int(layer)
    given = keep_given(pooling=pooling) | ({} if normalise is None else {"normalise": normalise})
    answer_lines(
        run,
        "embed",
        model,
        lambda model, _, texts: (embed_texts if level == "text" else embed_tokens)(model, texts, layer=where, **given),
        _choose_form("" if output is None or as_json else output.suffix, level, model, where),
        file=file,
        output=output,
        resume=resume,
        engine=engine,
        workers=workers,
        options={"level": level, "layer": layer, **given},
    )


def _choose_form(suffix: str, level: str, model: "Model", layer: Any) -> "Form":
    from seqloom.errors import ConfigError
    from seqloom.predict.forms import JsonForm, NpyForm, ParquetForm

    match suffix:
        case ".npy" if level == "text":
            return NpyForm(model.width(layer))
        case ".npy":
            raise ConfigError("texts have different numbers of tokens, so they make no array; use .parquet or .jsonl")
        case ".parquet":
            return ParquetForm(level)
        case _:
            return JsonForm()
