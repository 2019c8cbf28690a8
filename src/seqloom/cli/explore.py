"""`seqloom explore`: look inside a model, in the browser or as a file."""

from contextlib import nullcontext
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
    from seqloom.serve.start import bind
    from seqloom.serve.start import run as serve
    from seqloom.serve.subject import Subject

    disable_trimming()
    with bind(port) if save is None else nullcontext() as listening:
        subject = Subject(run)
        for note in subject.notes:
            typer.echo(f"note: {note}", err=True)
        if text is not None:
            subject.ask(text, second)
        elif second is not None:
            raise typer.BadParameter("--second goes with --text")
        if listening is not None:
            serve(subject, listening, typer.echo, browser=browser)
    if save is not None:
        _write(save, subject.save(subject.traces.make(subject.request), {}).encode())


def _write(path: Path, page: bytes) -> None:
    from seqloom.errors import ConfigError
    from seqloom.files import write_whole

    try:
        write_whole(path, page)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    typer.echo(f"wrote {path}, {len(page) / 1e6:.1f} MB; any browser opens it")
