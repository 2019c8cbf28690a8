"""The `seqloom` command: one file per group of verbs, each thin; heavy imports happen inside the verb."""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Annotated

import typer

from seqloom import __version__
from seqloom.cli import (
    check,
    embed,
    evaluate,
    formats,
    generate,
    info,
    label,
    score,
    start,
    tokenizer,
    train,
    translate,
    vectors,
    verify,
)
from seqloom.errors import ConfigError, SeqloomError

app = typer.Typer(
    name="seqloom",
    help="From plain text to your own sequence model.",
    epilog="Start with: seqloom demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"seqloom {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """From plain text to your own sequence model."""


app.command("demo")(start.demo)
app.command("train")(train.train)
app.command("translate")(translate.translate)
app.command("generate")(generate.generate)
app.command("classify")(label.classify)
app.command("tag")(label.tag)
app.command("embed")(embed.embed)
app.command("fill")(score.fill)
app.command("score")(score.score)
app.command("eval", cls=evaluate.ManyFiles)(evaluate.evaluate)
app.command("verify")(verify.verify)
app.command("import")(formats.import_)
app.command("export")(formats.export)
app.command("unpickle")(formats.unpickle)
app.command("new")(start.new)
app.command("check")(check.check)
app.command("schema")(start.schema)
app.command("info")(info.info)
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(vectors.app, name="vectors")


def run() -> None:
    """Run the command line: exit code 0 is success, 1 a failure, 2 a wrong command or configuration."""
    # Threads that wait for each other spin for some tenths of a millisecond and then sleep: those that sleep at once
    # make small models a quarter slower, those that spin for milliseconds make them many times slower on a machine that
    # does other work, too. Read by GNU's threading library when torch is first imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        app()
    except SeqloomError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except BrokenPipeError:  # the reader of our output went away: `seqloom ... | head`
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        sys.exit(130)


def main() -> None:
    """The same, and end the process: to take apart all that was imported, as Python would, takes most of a second."""
    code: object = None
    try:
        run()
    except SystemExit as end:
        code = end.code
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already, and has its exit code
    threading._shutdown()  # type: ignore[attr-defined]  # what Python does before: threads end, then files are tidied
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError, ValueError):  # the reader went away; it is closed
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
