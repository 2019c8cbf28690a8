"""`seqloom score` and `seqloom fill`: how probable each line is, and what its masks stand for."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.bulk import Lines, takes_lines


@takes_lines()
def score(
    target: Annotated[
        Path | None,
        typer.Option("--target", metavar="FILE", help="For a translation model: a file with the target of each line."),
    ] = None,
    *,
    lines: Lines,
) -> None:
    """Print the log-probability of each line; --json adds that of each token, perplexity and bits per byte.

    A translation model scores a target given its source: two columns separated by a tab, or a second file (--target).

    Example: echo "the cat sat on the mat" | seqloom score runs/lm --json
    """
    from seqloom.errors import ConfigError
    from seqloom.predict.score import score as apply

    model = lines.load()
    pairs = "target" in model.frames
    if target is not None and not pairs:
        raise ConfigError("--target is for translation models; this model scores single texts")
    lines.answer(
        "score",
        model,
        lambda model, _, *texts: apply(model, *texts),
        lambda found: f"{found.log_probability:.6g}" if found.tokens else "",
        columns=2 if pairs else 1,
        second=target,
        settings={},
    )


@takes_lines()
def fill(
    top: Annotated[int, typer.Option("--top", min=1, help="How many candidates --json shows for each mask.")] = 5,
    *,
    lines: Lines,
) -> None:
    """Print each line with its masks, written [MASK], filled with the most probable tokens.

    Example: echo "the [MASK] sat on the mat" | seqloom fill runs/bert --json --top 3
    """
    from seqloom.predict.fill import fill as apply

    lines.answer(
        "fill",
        lines.load(),
        lambda model, _, texts: apply(model, texts, top=top),
        lambda found: found.text,
        settings={"top": top},
    )
