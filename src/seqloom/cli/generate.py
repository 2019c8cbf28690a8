"""`seqloom generate`: lines in, their continuations out."""

from typing import Annotated, Any

import typer

from seqloom.cli import searching
from seqloom.cli.lines import (
    File,
    Json,
    Output,
    Resume,
    Run,
    Workers,
    answer_lines,
    choose_form,
    stream_lines,
)


@searching.take_search_options(without=("coverage_penalty",))
def generate(
    run: Run,
    file: File = None,
    *,
    search: dict[str, Any],
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each token as it is chosen, one line after the other.")
    ] = False,
    engine: searching.BulkEngine = "compiled",
    workers: Workers = None,
    as_json: Json = False,
    output: Output = None,
    resume: Resume = False,
) -> None:
    """Continue each line with a language model; what is printed is the continuation, without the line itself.

    Of a line that is too long, the model reads the last part, and that is told on standard error.

    With --stream, the same text is printed token by token.

    Example: echo "Once upon a time" | seqloom generate runs/tales --sample --top-p 0.9 --seed 1
    """
    from seqloom.decode.options import Search
    from seqloom.predict import load
    from seqloom.predict.generate import generate as apply
    from seqloom.predict.generate import stream_text

    model = load(run, engine=searching.name_searcher(engine))
    wanted = Search(**search)
    apply(model, [], wanted, numbers=[])  # what cannot be asked for is refused before anything is read
    if stream:
        if as_json or output is not None or wanted.width > 1 or engine == "ray":
            raise typer.BadParameter("--stream prints one text as it grows; leave --json, -o, --beam, --nbest, ray out")
        stream_lines("generate", lambda number, prompt: stream_text(model, prompt, wanted, number=number), file=file)
        return
    answer_lines(
        run,
        "generate",
        model,
        lambda model, numbers, prompts: apply(model, prompts, wanted, numbers=numbers),
        choose_form(as_json, lambda found: "\t".join(answer.text for answer in (found, *found.alternatives))),
        file=file,
        output=output,
        resume=resume,
        engine=engine,
        workers=workers,
        options={**search, "engine": searching.name_searcher(engine)},
    )
