"""`seqloom tag`: lines in, a tag for each word out."""

from seqloom.cli.lines import Engine, File, Json, Output, Resume, Run, Workers, answer_lines, choose_form


def tag(
    run: Run,
    file: File = None,
    engine: Engine = "compiled",
    workers: Workers = None,
    as_json: Json = False,
    output: Output = None,
    resume: Resume = False,
) -> None:
    """Print the tags of the words of each line, separated by spaces; a word is what stands between white space.

    Example: echo "Ada lived in London ." | seqloom tag runs/names --json
    """
    from seqloom.predict import load
    from seqloom.predict.tag import tag as apply

    model = load(run)
    answer_lines(
        run,
        "tag",
        model,
        lambda model, _, texts: apply(model, texts),
        choose_form(as_json, lambda found: " ".join(found.tags)),
        file=file,
        output=output,
        resume=resume,
        engine=engine,
        workers=workers,
        options={},
    )
