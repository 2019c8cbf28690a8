"""`seqloom classify` and `seqloom tag`: a label for each line, or for each of its words."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.bulk import Lines, takes_lines
from seqloom.cli.options import keep_given

if TYPE_CHECKING:
    from seqloom.predict.results import Classification, Quantity, Tagging


@takes_lines()
def classify(
    shots: Annotated[
        Path | None, typer.Option("--shots", metavar="TSV", help="Labelled examples for a language model: text, label.")
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--labels", metavar="LABEL", help="A label to choose from; may be given several times."),
    ] = None,
    template: Annotated[
        str | None, typer.Option("--template", help='The form of an example; "{text} {label}".')
    ] = None,
    separator: Annotated[str | None, typer.Option("--separator", help="Between examples; a space by default.")] = None,
    *,
    lines: Lines,
) -> None:
    """Print the label of each line, or the number where labels are numbers; a pair of texts is separated by a tab.

    With --shots, a language model that was never trained to classify reads labelled examples (text, tab, label) and
    answers with the label it finds most probable.

    Example: echo "a moving and funny film" | seqloom classify runs/reviews --json
    """
    from seqloom.predict.classify import classify as apply
    from seqloom.predict.classify import classify_by_shots, count_columns, read_examples, read_shots

    model = lines.load()
    examples = read_examples(str(shots)) if shots is not None else None
    wanted = read_shots(model, examples, labels or (), template, separator)
    given = keep_given(template=template, separator=separator)
    if wanted is not None:
        given |= {"shots": examples or (), "labels": labels}
    fewest, most = count_columns(model)
    lines.answer(
        "classify",
        model,
        lambda model, _, *texts: classify_by_shots(model, texts[0], wanted) if wanted else apply(model, *texts),
        _show,
        columns=most,
        optional=most - fewest,
        settings=given,
    )


def _show(found: "Classification | Quantity") -> str:
    from seqloom.predict.results import Quantity

    if isinstance(found, Quantity):
        return "" if found.value is None else f"{found.value:.6g}"
    return found.label


@takes_lines()
def tag(
    words: Annotated[
        bool,
        typer.Option("--words", help='Each line is JSON: a list of words, or an object with the key "words".'),
    ] = False,
    independent: Annotated[
        bool,
        typer.Option("--independent", help="The best tag of each word by itself, also where it breaks the scheme."),
    ] = False,
    *,
    lines: Lines,
) -> None:
    """Print the tags of the words of each line, separated by spaces; words are separated by white space.

    Where the tags mark spans, such as names (B-PER I-PER O), they keep to the rules of their scheme, and the spans
    follow after a tab: the kind, the characters from and to, and the text of each.

    Example: echo "Ada lived in London ." | seqloom tag runs/names --json
    """
    from seqloom.predict.tag import parse_words
    from seqloom.predict.tag import tag as apply

    lines.answer(
        "tag",
        lines.load(),
        lambda model, _, texts: apply(model, [*map(parse_words, texts)] if words else texts, legal=not independent),
        _show_tags,
        plain=words,
        settings={"words": words, "independent": independent},
    )


def _show_tags(found: "Tagging") -> str:
    spans = "; ".join(f"{span.label} {span.start}-{span.end} {span.text}".lstrip() for span in found.spans)
    return " ".join(found.tags) + (f"\t{spans}" if spans else "")
