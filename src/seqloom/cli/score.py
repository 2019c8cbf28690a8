"""`seqloom score`: lines in, how probable each is out."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.lines import Engine, File, Json, Output, Resume, Run, Workers, answer_lines, choose_form


def score(
    run: Run,
    file: File = None,
    target: Annotated[
        Path | None,
        typer.Option("--target", metavar="FILE", help="For a translation model: the targets, line by line."),
    ] = None,
    engine: Engine = "compiled",
    workers: Workers = None,
    as_json: Json = False,
    output: Output = None,
    resume: Resume = False,
) -> None:
    """Print the log-probability of each line; --json adds that of each token, perplexity and bits per byte.

    A translation model scores a target given its source: two columns separated by a tab, or a second file (--target).

    Example: echo "the cat sat on the mat" | seqloom score runs/lm --json
    """
    from seqloom.errors import ConfigError
    from seqloom.predict import load
    from seqloom.predict.score import score as apply

    model = load(run)
    pairs = "target" in model.frames
    if target is not None and not pairs:
        raise ConfigError("--target is for translation models; this one scores texts alone")
    answer_lines(
        run,
        "score",
        model,
        lambda model, _, *texts: apply(model, *texts),
        choose_form(as_json, lambda found: f"{found.log_probability:.6g}" if found.tokens else ""),
        file=file,
        output=output,
        resume=resume,
        engine=engine,
        workers=workers,
        columns=2 if pairs else 1,
        second=target,
        options={},
    )
