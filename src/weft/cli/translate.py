"""`weft translate`: lines in, lines out."""

from pathlib import Path
from typing import Annotated

import typer


def translate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    file: Annotated[Path | None, typer.Argument(help="A file with a text a line; otherwise standard input.")] = None,
) -> None:
    """Translate each line; line N of the output belongs to line N of the input.

    Example: echo "Guten Morgen" | weft translate runs/de-en
    """
    import sys
    from itertools import islice

    from weft.predict import load
    from weft.text.lines import decode_lines, read_lines

    model = load(run)
    lines = read_lines(file) if file else decode_lines(sys.stdin.buffer, "standard input")
    while texts := list(islice(lines, 1024)):
        for answer in model.translate(texts):
            typer.echo(answer)
