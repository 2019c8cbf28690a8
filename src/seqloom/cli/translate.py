"""`seqloom translate`: lines in, their translations out."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import searching
from seqloom.cli.lines import File, Json, Output, Resume, Run, Workers, answer_lines, choose_form

if TYPE_CHECKING:
    from seqloom.predict.results import Translation


@searching.take_search_options()
def translate(
    run: Run,
    file: File = None,
    *,
    search: dict[str, Any],
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Add ` ||| 0-0 1-2`: which source word each target word comes from.")
    ] = False,
    engine: searching.BulkEngine = "compiled",
    workers: Workers = None,
    as_json: Json = False,
    output: Output = None,
    resume: Resume = False,
) -> None:
    """Translate each line; line N of the output belongs to line N of the input.

    A blank line stays blank, a line that cannot be read becomes [failed: WHY], a line that is too long is translated in
    pieces, and all of it is told on standard error. Exit code 1: some lines failed.

    Example: echo "Guten Morgen" | seqloom translate runs/de-en --beam 5
    """
    from seqloom.decode.options import Search
    from seqloom.predict import load
    from seqloom.predict.translate import translate as apply

    model = load(run, engine=searching.name_searcher(engine))
    wanted, align = Search(**search), alignments or as_json
    apply(model, [], wanted, align=align, numbers=[])  # what cannot be asked for is refused before anything is read

    def show(found: "Translation") -> str:
        answers = (found, *found.alternatives)
        if not alignments or not found.tokens:
            return "\t".join(answer.text for answer in answers)
        pairs = (" ".join(f"{source}-{target}" for source, target in answer.alignment) for answer in answers)
        return "\t".join(f"{answer.text} ||| {pair}" for answer, pair in zip(answers, pairs, strict=True))

    answer_lines(
        run,
        "translate",
        model,
        lambda model, numbers, texts: apply(model, texts, wanted, align=align, numbers=numbers),
        choose_form(as_json, show),
        file=file,
        output=output,
        resume=resume,
        engine=engine,
        workers=workers,
        options={**search, "alignments": align, "engine": searching.name_searcher(engine)},
    )
