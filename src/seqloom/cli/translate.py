"""`seqloom translate`: lines in, their translations out."""

from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli import searching
from seqloom.cli.lines import File, Json, Output, Resume, Run, Workers, answer_lines, choose_form, keep_given

if TYPE_CHECKING:
    from seqloom.predict.results import Translation


def translate(
    run: Run,
    file: File = None,
    beam: searching.Beam = None,
    nbest: searching.NBest = None,
    length_penalty: searching.LengthPenalty = None,
    coverage_penalty: searching.CoveragePenalty = None,
    sample: searching.Sample = False,
    temperature: searching.Temperature = None,
    top_k: searching.TopK = None,
    top_p: searching.TopP = None,
    min_p: searching.MinP = None,
    seed: searching.Seed = None,
    min_length: searching.MinLength = None,
    max_length: searching.MaxLength = None,
    prefix: searching.Prefix = None,
    constraint: searching.Constraint = None,
    avoid: searching.Avoid = None,
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
    from seqloom.predict import load
    from seqloom.predict.searching import Search
    from seqloom.predict.translate import translate as apply

    model = load(run, engine=searching.name_searcher(engine))
    search = keep_given(
        beam=beam,
        nbest=nbest,
        length_penalty=length_penalty,
        coverage_penalty=coverage_penalty,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        min_length=min_length,
        max_length=max_length,
        prefix=prefix,
        constraints=constraint,
        avoid=avoid,
    )
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
