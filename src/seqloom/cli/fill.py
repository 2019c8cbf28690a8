"""`seqloom fill`: lines with masks in, lines without out."""

from typing import Annotated

import typer

from seqloom.cli.lines import Engine, File, Json, Output, Resume, Run, Workers, answer_lines, choose_form


def fill(
    run: Run,
    file: File = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Candidates of each mask, shown by --json.")] = 5,
    engine: Engine = "compiled",
    workers: Workers = None,
    as_json: Json = False,
    output: Output = None,
    resume: Resume = False,
) -> None:
    """Print each line with its masks, written [MASK], filled by what the model finds most probable.

    Example: echo "the [MASK] sat on the mat" | seqloom fill runs/bert --json --top 3
    """
    from seqloom.predict import load
    from seqloom.predict.fill import fill as apply

    model = load(run)
    answer_lines(
        run,
        "fill",
        model,
        lambda model, _, texts: apply(model, texts, top=top),
        choose_form(as_json, lambda found: found.text),
        file=file,
        output=output,
        resume=resume,
        engine=engine,
        workers=workers,
        options={"top": top},
    )
