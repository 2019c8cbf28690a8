"""The `seqloom` command: one file per group of verbs, each thin; heavy imports happen inside the verb."""

import atexit
import errno
import os
import signal
import sys
import threading
import warnings
from typing import Annotated, Any

import typer

from seqloom import __version__
from seqloom.cli import (
    check,
    compare,
    embed,
    evaluate,
    explore,
    formats,
    info,
    lab,
    label,
    prepare,
    runs,
    score,
    search,
    serve,
    start,
    tokenizer,
    train,
    vectors,
    verify,
)
from seqloom.cli.options import Commands, name_options
from seqloom.cli.process import Stop, replace_closed_streams
from seqloom.errors import ConfigError, Notice, SeqloomError

app = typer.Typer(
    name="seqloom",
    cls=Commands,
    help="From plain text to your own sequence model.",
    epilog="Start with: seqloom demo",
    no_args_is_help=True,
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
app.command("new")(start.new)
app.command("recipes")(start.recipes)
app.command("check")(check.check)
app.command("prepare")(prepare.prepare)
app.command("train")(train.train)
app.command("runs")(runs.runs)
app.command("eval", cls=evaluate.ManyFiles)(evaluate.evaluate)
app.command("translate")(search.translate)
app.command("generate")(search.generate)
app.command("classify")(label.classify)
app.command("tag")(label.tag)
app.command("embed")(embed.embed)
app.command("fill")(score.fill)
app.command("score")(score.score)
app.command("explore")(explore.explore)
app.command("serve")(serve.serve)
app.command("verify")(verify.verify)
app.command("import")(formats.import_)
app.command("export")(formats.export)
app.command("unpickle")(formats.unpickle)
app.command("schema")(start.schema)
app.command("info")(info.info)
app.command("compare")(compare.compare)
app.add_typer(lab.app, name="lab")
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(vectors.app, name="vectors")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """A notice is for the user, any other warning for a programmer."""
    plain = issubclass(category, Notice)
    text = (
        f"note: {_name_options(message)}\n"
        if plain
        else warnings.formatwarning(message, category, filename, lineno, line)
    )
    typer.echo(text, file=file, err=file is None, nl=False)


def _name_options(message: object) -> str:
    return name_options(str(message), typer.main.get_command(app), sys.argv[1:])


def run() -> None:
    """Run the command line: exit code 0 is success, 1 a failure, 2 a wrong command or configuration."""
    # Waiting threads should spin for some tenths of a millisecond and then sleep. If they sleep at once, small models
    # are a quarter slower; if they spin for milliseconds, many times slower on a machine that also does other work.
    # GNU's threading library reads this when torch is first imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    warnings.showwarning = _show_warning
    try:
        replace_closed_streams()
        app(prog_name="seqloom")
    except SeqloomError as error:
        typer.echo(f"error: {_name_options(error)}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except OSError as error:  # a full disk, most often; an unforeseen one keeps its traceback
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO):
            raise
        typer.echo(f"error: {error.filename or 'standard output'}: cannot be written: {error.strerror}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        sys.exit(130)


def main() -> None:
    """Run the command line and end the process at once: Python's own clean-up takes most of a second."""
    code: object = None
    try:
        run()
    except SystemExit as end:
        code = end.code
    except BaseException:
        if Stop.exit_code is None:
            raise
    code = code if Stop.exit_code is None else Stop.exit_code
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the process is ending already, with its own exit code
    threading._shutdown()  # type: ignore[attr-defined]  # as Python does: end threads, then run exit functions
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):  # the reader is gone, or the stream is closed
            pass
        except OSError:
            code = code or 1  # what was printed last is lost
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
