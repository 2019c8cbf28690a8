"""`seqloom generate`: lines in, their continuations out."""

from typing import Annotated, Any

import typer

from seqloom.cli.bulk import Lines, takes_lines
from seqloom.cli.options import takes_search


@takes_lines(searches=True)
@takes_search(without=("coverage_penalty",))
def generate(
    search: dict[str, Any],
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each token as it is chosen, one line after the other.")
    ] = False,
    *,
    lines: Lines,
) -> None:
    """Continue each line with a language model; what is printed is the continuation, without the line itself.

    If a line is too long, the model reads its last part, and standard error says so.

    With --stream, the same text is printed token by token.

    Example: echo "Once upon a time" | seqloom generate runs/tales --sample --top-p 0.9 --seed 1
    """
    from seqloom.decode.options import Search
    from seqloom.predict.generate import generate as apply
    from seqloom.predict.generate import stream_text

    model, wanted = lines.load(), Search(**search)
    if stream:
        apply(model, [], wanted, numbers=[])  # what cannot be asked for is refused before anything is read
        if lines.as_json or lines.output is not None or wanted.width > 1 or lines.place == "ray":
            raise typer.BadParameter("--stream prints one text as it grows; leave --json, -o, --beam, --nbest, ray out")
        lines.stream("generate", lambda number, prompt: stream_text(model, prompt, wanted, number=number))
        return
    lines.answer(
        "generate",
        model,
        lambda model, numbers, prompts: apply(model, prompts, wanted, numbers=numbers),
        lambda found: "\t".join(answer.text for answer in (found, *found.alternatives)),
        settings={**search, "engine": lines.engine},
    )
