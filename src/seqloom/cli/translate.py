"""`seqloom translate`: lines in, their translations out."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli.bulk import Lines, takes_lines
from seqloom.cli.options import takes_search

if TYPE_CHECKING:
    from seqloom.predict.results import Translation


@takes_lines(searches=True)
@takes_search()
def translate(
    search: dict[str, Any],
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Add ` ||| 0-0 1-2`: which source word each target word comes from.")
    ] = False,
    *,
    lines: Lines,
) -> None:
    """Translate each line; line N of the output belongs to line N of the input.

    A blank line stays blank, a line that cannot be read becomes [failed: WHY], and a line that is too long is
    translated in pieces; standard error says which lines these are. Exit code 1: some lines failed.

    Example: echo "Guten Morgen" | seqloom translate runs/de-en --beam 5
    """
    from seqloom.decode.options import Search
    from seqloom.predict.translate import translate as apply

    wanted, align = Search(**search), alignments or lines.as_json

    def show(found: "Translation") -> str:
        answers = (found, *found.alternatives)
        if not alignments or not found.tokens:
            return "\t".join(answer.text for answer in answers)
        pairs = (" ".join(f"{source}-{target}" for source, target in answer.alignment) for answer in answers)
        return "\t".join(f"{answer.text} ||| {pair}" for answer, pair in zip(answers, pairs, strict=True))

    lines.answer(
        "translate",
        lines.load(),
        lambda model, numbers, texts: apply(model, texts, wanted, align=align, numbers=numbers),
        show,
        settings={**search, "alignments": align, "engine": lines.engine},
    )
