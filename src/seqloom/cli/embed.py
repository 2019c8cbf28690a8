"""`seqloom embed`: a vector for each line, or for each of its tokens."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from seqloom.cli.bulk import Lines, takes_lines
from seqloom.cli.options import keep_given

if TYPE_CHECKING:
    from seqloom.predict.formats import Format
    from seqloom.predict.predictor import Predictor


@takes_lines(as_json="Print one JSON object per line; the default without -o.")
def embed(
    level: Annotated[
        Literal["text", "token"], typer.Option(help="A vector for each text, or for each token.")
    ] = "text",
    pooling: Annotated[
        Literal["mean", "cls", "max", "attention"] | None,
        typer.Option(help="How to pool the vectors of tokens; by default the model's own way, often the mean."),
    ] = None,
    layer: Annotated[
        str,
        typer.Option(
            help="0 is the input, 1 the first layer, -1 the last; all: every layer; mix: the mean of all; concat: "
            "[v; h→; h←], the token's own vector and the last states of both directions."
        ),
    ] = "-1",
    normalise: Annotated[
        bool | None,
        typer.Option("--normalise/--as-is", help="Whether vectors are scaled to length 1; the model's way by default."),
    ] = None,
    *,
    lines: Lines,
) -> None:
    """Turn each line into a vector, with any model that has an encoder or decoder.

    The name of -o chooses the format: .npy (one row per line, zeros for a blank line, NaN for a failed one),
    .parquet, or else lines of JSON. With --layer all, a vector becomes one for each layer.

    Example: seqloom embed runs/bert sentences.txt --normalise -o vectors.npy
    """
    from seqloom.errors import ConfigError
    from seqloom.predict.embed import Layer, embed_texts, embed_tokens

    named = layer in get_args(get_args(Layer)[1])
    if not named and not layer.removeprefix("-").isdecimal():
        raise ConfigError(f"--layer {layer}: give a number, all, mix or concat")
    if level == "token" and pooling is not None:
        raise ConfigError("--pooling combines the vectors of tokens; leave it out with --level token")
    model = lines.load()
    where: Any = layer if named else int(layer)
    given = keep_given(pooling=pooling) | ({} if normalise is None else {"normalise": normalise})
    lines.answer(
        "embed",
        model,
        lambda model, _, texts: (embed_texts if level == "text" else embed_tokens)(model, texts, layer=where, **given),
        _choose_format("" if lines.output is None or lines.as_json else lines.output.suffix, level, model, where),
        settings={"level": level, "layer": layer, **given},
    )


def _choose_format(suffix: str, level: str, model: "Predictor", layer: Any) -> "Format":
    from seqloom.errors import ConfigError
    from seqloom.predict.embed import measure_shape
    from seqloom.predict.formats import JsonFormat, NpyFormat, ParquetFormat

    match suffix:
        case ".npy" if level == "text":
            return NpyFormat(measure_shape(model, layer))
        case ".npy":
            raise ConfigError("texts have different numbers of tokens, so they make no array; use .parquet or .jsonl")
        case ".parquet":
            return ParquetFormat(level, all_layers=layer == "all")
        case _:
            return JsonFormat()
