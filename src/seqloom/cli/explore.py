"""`seqloom explore`: look inside a model, in the browser or as a file."""

from pathlib import Path
from typing import Annotated

import typer


def explore(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of published weights.")],
    text: Annotated[
        str | None, typer.Option("--text", help="What to trace first; default: a sentence of the validation data.")
    ] = None,
    second: Annotated[
        str | None,
        typer.Option("--second", help="The second text of a pair, or a target to read in place of the model's own."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write one HTML file that opens without a server, and end."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port to listen at; 0 is any free one.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser at the address that is printed.")
    ] = True,
) -> None:
    """Look inside a model in the browser: answers, mixing, reasons, search, changes, words, runs.

    Everything stays on this machine: the page comes from this program, and only this user's browser reaches it.

    Example: seqloom explore runs/de-en --text "Guten Morgen"
    """
    from seqloom.cli.process import disable_trimming
    from seqloom.files import write_whole
    from seqloom.serve.subject import open_subject

    disable_trimming()
    subject = open_subject(run, text, second)
    if save is not None:
        page = subject.save(subject.traces.make(subject.request), {})
        write_whole(save, page.encode())
        typer.echo(f"wrote {save}: {len(page) / 1e6:.1f} MB; open it in any browser")
        return
    from seqloom.serve.start import run as serve

    serve(subject, typer.echo, port=port, browser=browser)
