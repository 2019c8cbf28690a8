"""`seqloom score` and `seqloom fill`: how probable each line is, and what is most probable where a line has a mask."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.bulk import Lines, takes_lines


@takes_lines()
def score(
    target: Annotated[
        Path | None,
        typer.Option("--target", metavar="FILE", help="For a translation model: the targets, line by line."),
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
        raise ConfigError("--target is for translation models; this one scores texts alone")
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
    top: Annotated[int, typer.Option("--top", min=1, help="Candidates of each mask, shown by --json.")] = 5,
    *,
    lines: Lines,
) -> None:
    """Print each line with its masks, written [MASK], filled by what the model finds most probable.

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
