"""`seqloom classify`: lines in, their labels out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.lines import Engine, File, Json, Output, Resume, Run, Workers, answer_lines, choose_form, keep_given

if TYPE_CHECKING:
    from seqloom.predict import Model
    from seqloom.predict.classify import Answer


def classify(
    run: Run,
    file: File = None,
    shots: Annotated[
        Path | None, typer.Option("--shots", metavar="TSV", help="Labelled examples for a language model: text, label.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="With or without --shots: a label that may be answered.")
    ] = None,
    template: Annotated[str | None, typer.Option("--template", help='An example; otherwise "{text} {label}".')] = None,
    separator: Annotated[str | None, typer.Option("--separator", help="Between examples; otherwise a space.")] = None,
    engine: Engine = "compiled",
    workers: Workers = None,
    as_json: Json = False,
    output: Output = None,
    resume: Resume = False,
) -> None:
    """Print the label of each line, or the number where labels are numbers; a pair of texts is separated by a tab.

    With --shots, a language model that was never trained to classify reads labelled examples (text, tab, label) and
    answers with the label it finds most probable.

    Example: echo "a moving and funny film" | seqloom classify runs/reviews --json
    """
    from seqloom.errors import ConfigError
    from seqloom.predict import load
    from seqloom.predict.classify import classify as apply
    from seqloom.predict.shots import Shots, classify_by_shots, read_examples

    model = load(run)
    given = keep_given(template=template, separator=separator)
    examples = read_examples(str(shots)) if shots is not None else ()
    if examples or label:
        wanted = Shots(examples, tuple(label or ()), **given)
        given |= {"shots": examples, "labels": label}
    elif given:
        raise ConfigError("--template and --separator say how examples are written; give some with --shots")

    def answer(model: "Model", _: object, *texts: list[str]) -> "list[Answer]":
        return list(classify_by_shots(model, texts[0], wanted)) if examples or label else apply(model, *texts)

    answer_lines(
        run,
        "classify",
        model,
        answer,
        choose_form(as_json, _show),
        file=file,
        output=output,
        resume=resume,
        engine=engine,
        workers=workers,
        columns=2 if "second" in model.frames else 1,
        options=given,
    )


def _show(found: "Answer") -> str:
    from seqloom.predict.results import Quantity

    if isinstance(found, Quantity):
        return "" if found.value is None else f"{found.value:.6g}"
    return found.label
